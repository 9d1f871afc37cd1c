//! Owners as another program names them.

use std::collections::HashMap;

use strongroom_source::Accounts;

/// The users and groups that a snapshot names.
#[derive(Debug, Default)]
pub struct Owners {
    users: Names,
    groups: Names,
}

/// Names by number; of a number that has two, none.
#[derive(Debug, Default)]
struct Names(HashMap<u32, Option<String>>);

impl Owners {
    /// Adds those of a file, as far as they have names.
    pub fn add(&mut self, user: (Option<u32>, Option<&str>), group: (Option<u32>, Option<&str>)) {
        self.users.add(user.0, user.1);
        self.groups.add(group.0, group.1);
    }

    /// All of them.
    pub fn into_accounts(self) -> Accounts {
        Accounts::of_names(self.users.into_pairs(), self.groups.into_pairs())
    }
}

impl Names {
    fn add(&mut self, number: Option<u32>, name: Option<&str>) {
        let (Some(number), Some(name)) = (number, name.filter(|name| !name.is_empty())) else {
            return;
        };
        let known = self.0.entry(number).or_insert_with(|| Some(name.to_owned()));
        if known.as_deref() != Some(name) {
            *known = None;
        }
    }

    fn into_pairs(self) -> impl Iterator<Item = (u32, String)> {
        self.0.into_iter().filter_map(|(number, name)| Some((number, name?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_with_two_names_has_none() {
        let mut owners = Owners::default();
        owners.add((Some(1), Some("me")), (Some(5), Some("staff")));
        owners.add((Some(1), Some("other")), (Some(5), Some("staff")));
        owners.add((Some(2), Some("two")), (Some(6), Some("")));
        owners.add((Some(3), None), (None, Some("no number")));
        let accounts = owners.into_accounts();
        let user = |uid| accounts.user_name(uid).map(|name| &**name);
        assert_eq!([user(1), user(2), user(3)], [None, Some("two"), None]);
        assert_eq!(accounts.group_name(5).map(|name| &**name), Some("staff"));
        assert_eq!(accounts.group_name(6), None);
    }
}
