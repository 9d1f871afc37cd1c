//! The files in which Amazon's own programs keep regions, end points and keys.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::settings::Variables;

/// The settings of one profile, from both files; those of the credentials' file win.
#[derive(Debug, Default)]
pub(crate) struct Profile(BTreeMap<String, String>);

impl Profile {
    /// The profile that `AWS_PROFILE` names, or `default`. Files that do not exist are empty.
    pub(crate) fn read(variables: &Variables) -> Self {
        let name = variables.text("AWS_PROFILE").unwrap_or("default");
        let file = |variable: &str, path: &str| {
            let given = variables.get(variable).map(PathBuf::from);
            let path = given.or_else(|| variables.in_home(path))?;
            std::fs::read_to_string(path).ok()
        };
        let mut settings = BTreeMap::new();
        if let Some(text) = file("AWS_CONFIG_FILE", ".aws/config") {
            let section =
                if name == "default" { name.to_owned() } else { format!("profile {name}") };
            settings.extend(section_of(&text, &section));
        }
        if let Some(text) = file("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials") {
            settings.extend(section_of(&text, name));
        }
        Self(settings)
    }

    /// A setting that is not empty.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }
}

/// The settings of a section: lines `key = value` after a line `[section]`.
fn section_of(text: &str, wanted: &str) -> BTreeMap<String, String> {
    let mut settings = BTreeMap::new();
    let mut is_wanted = false;
    for line in text.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[').and_then(|line| line.split(']').next()) {
            is_wanted = section.trim() == wanted;
        } else if is_wanted
            && !line.starts_with(['#', ';'])
            && let Some((key, value)) = line.split_once('=')
        {
            settings.insert(key.trim().to_owned(), value.trim().to_owned());
        }
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wanted_section_is_found() {
        let text = "[other]\nregion = a\n[ profile x ]\n# region = b\nregion=c\n key = d=e \n[z]\n";
        let found = section_of(text, "profile x");
        assert_eq!(found["region"], "c");
        assert_eq!(found["key"], "d=e");
        assert_eq!(found.len(), 2);
    }
}
