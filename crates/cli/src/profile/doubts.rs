//! What in a profile is no error, but will hardly do what was meant.

use std::io::ErrorKind;

use strongroom_base::Printable;

use super::file::{Profiles, nearest};
use super::setting::{Value, at_home};
use crate::exit::CliError;

/// Options that name files or folders which must be there.
const FILES: [&str; 8] = [
    "password-file",
    "exclude-file",
    "exclude-from",
    "iexclude-file",
    "files-from",
    "files-from0",
    "files-from-raw",
    "paths",
];

/// What is wrong with where a profile's passphrase is: one that others may read is no secret.
pub fn exposed(profiles: &Profiles, profile: &str) -> Result<Vec<String>, CliError> {
    use std::os::unix::fs::MetadataExt;
    let settings = profiles.settings(profile, "")?;
    let files = settings.iter().filter(|setting| setting.name == "password-file");
    let files = files.flat_map(|setting| match &setting.value {
        Value::Words(words) => words.iter().map(|file| at_home(file)).collect(),
        Value::Flag(_) => Vec::new(),
    });
    let is_exposed = |file: &String| {
        std::fs::metadata(file).is_ok_and(|file| file.is_file() && file.mode() & 0o004 != 0)
    };
    let say = |file: String| {
        let file = Printable::text(&file).to_string();
        format!("others can read the passphrase in {file}: run `chmod 600 {file}`")
    };
    Ok(files.filter(is_exposed).map(say).collect())
}

/// Files that a profile names and that are not there.
pub fn absent(profiles: &Profiles, profile: &str) -> Result<Vec<String>, CliError> {
    let mut settings = profiles.settings(profile, "")?;
    // Other sections have arguments of the same names that need not be there.
    settings.extend(profiles.settings(profile, "backup")?);
    let mut absent = Vec::new();
    for setting in settings.iter().filter(|one| FILES.contains(&&*one.name)) {
        let Value::Words(words) = &setting.value else { continue };
        for file in words.iter().map(|word| at_home(word)).filter(|file| file != "-") {
            if std::fs::symlink_metadata(&file).is_err_and(|error| {
                matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
            }) {
                let (position, name) = (&setting.position, &setting.name);
                absent
                    .push(format!("{position}: `{name}`: there is no {}", Printable::text(&file)));
            }
        }
    }
    absent.sort();
    absent.dedup();
    Ok(absent)
}

/// A profile that names no repository, and whose name is probably that of another one mistyped.
pub fn mistyped(profiles: &Profiles, profile: &str) -> Result<Option<String>, CliError> {
    if profiles.is_extended(profile) || profiles.names_repository(profile) {
        return Ok(None);
    }
    let others: Vec<&str> = profiles
        .names()
        .filter(|other| *other != profile && profiles.names_repository(other))
        .collect();
    let position = &profiles.get(profile)?.position;
    Ok(nearest(profile, &others).map(|near| {
        let profile = Printable::text(profile);
        format!("{position}: the profile `{profile}` has no `repo`: did you mean `{near}`?")
    }))
}
