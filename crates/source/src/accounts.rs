//! Owners by name and by number, from `/etc/passwd` and `/etc/group`.
//!
//! The files themselves are read, once. Name services (NSS: LDAP, sssd, systemd-homed) are not
//! asked, because that needs the C library's resolver. An owner that only they know is kept by
//! number.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The users and groups of a machine.
#[derive(Debug, Clone, Default)]
pub struct Accounts {
    users: Table,
    groups: Table,
}

/// One of the two files. If a name or a number occurs twice, the first line counts, as in the C
/// library.
#[derive(Debug, Clone, Default)]
struct Table {
    names: BTreeMap<u32, Arc<str>>,
    numbers: HashMap<String, u32>,
}

impl Accounts {
    /// Reads the files of this machine. A missing file has no lines.
    pub fn of_this_machine() -> Self {
        let read = |path| std::fs::read(path).unwrap_or_default();
        Self::parse(&read("/etc/passwd"), &read("/etc/group"))
    }

    /// Reads the text of a passwd file and of a group file.
    pub fn parse(passwd: &[u8], group: &[u8]) -> Self {
        Self { users: Table::parse(passwd), groups: Table::parse(group) }
    }

    /// These users and groups, by number.
    pub fn of_names(
        users: impl IntoIterator<Item = (u32, String)>,
        groups: impl IntoIterator<Item = (u32, String)>,
    ) -> Self {
        Self { users: Table::of_names(users), groups: Table::of_names(groups) }
    }

    /// The name of a user.
    pub fn user_name(&self, uid: u32) -> Option<&Arc<str>> {
        self.users.names.get(&uid)
    }

    /// The name of a group.
    pub fn group_name(&self, gid: u32) -> Option<&Arc<str>> {
        self.groups.names.get(&gid)
    }

    /// The number of a user.
    pub fn uid(&self, user: &str) -> Option<u32> {
        self.users.numbers.get(user).copied()
    }

    /// The number of a group.
    pub fn gid(&self, group: &str) -> Option<u32> {
        self.groups.numbers.get(group).copied()
    }
}

impl Table {
    fn of_names(names: impl IntoIterator<Item = (u32, String)>) -> Self {
        let mut table = Self::default();
        for (number, name) in names {
            table.names.insert(number, name.as_str().into());
            table.numbers.entry(name).or_insert(number);
        }
        table
    }

    fn parse(text: &[u8]) -> Self {
        let mut table = Self::default();
        for (name, number) in text.split(|&byte| byte == b'\n').filter_map(parse_line) {
            table.names.entry(number).or_insert_with(|| name.into());
            table.numbers.entry(name.to_owned()).or_insert(number);
        }
        table
    }
}

/// `name:password:number:…`, in both files. NIS lines (`+`, `-`) and comments name no user.
fn parse_line(line: &[u8]) -> Option<(&str, u32)> {
    let line = std::str::from_utf8(line).ok()?;
    let mut fields = line.split(':');
    let name =
        fields.next().filter(|name| !name.is_empty() && !name.starts_with(['+', '-', '#']))?;
    let number = fields.nth(1)?.parse().ok()?;
    Some((name, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_counts_and_odd_lines_do_not() {
        let passwd = b"root:x:0:0::/root:/bin/sh\ntoor:x:0:0::/root:/bin/sh\n\n+nis:x:9:9\nbad\n\
                       # note:x:7:7\nme:x:1000:1000:Me:/home/me:/bin/sh\nme:x:1001:1::/:\n\
                       big:x:4294967296:1::/:\n\xff:x:5:5\nlast:x:4294967294:1";
        let accounts = Accounts::parse(passwd, b"root:x:0:\nstaff:x:50:me\n");
        assert_eq!(accounts.user_name(0).map(|name| &**name), Some("root"));
        assert_eq!(accounts.uid("toor"), Some(0));
        assert_eq!(accounts.uid("me"), Some(1000));
        assert_eq!(accounts.user_name(1001).map(|name| &**name), Some("me"));
        assert_eq!(accounts.user_name(4_294_967_294).map(|name| &**name), Some("last"));
        for absent in [5, 7, 9] {
            assert_eq!(accounts.user_name(absent), None);
        }
        assert_eq!(accounts.group_name(50).map(|name| &**name), Some("staff"));
        assert_eq!(accounts.gid("wheel"), None);
    }
}
