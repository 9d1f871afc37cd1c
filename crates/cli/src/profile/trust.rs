//! Whether a file may say which commands we run: only if no other user can write it, or put another
//! in its place.
//!
//! The rules are those of sshd for `authorized_keys`: the file, and each folder above it up to the
//! home folder, belong to the user who runs us or to root, and no other user may write to them. A
//! group may, if it has no other member: many systems give each user such a group, and files that
//! it may write to. sudo trusts a group of root in the same way.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use strongroom_base::Printable;
use strongroom_source::Accounts;

use crate::exit::{CliError, Exit};

const OF_ROOT: u32 = 0;
const STICKY: u32 = 0o1000;

/// Refuses a file that another user can change or replace. `path` is as it was named, `real` where
/// links lead, `file` what was opened there.
pub fn check(path: &Path, real: &Path, file: &Metadata) -> Result<(), CliError> {
    let user = rustix::process::geteuid().as_raw();
    if let Some(fault) = fault_of(file, user) {
        return Err(fault.refuse(real, None, user));
    }
    let home = std::env::var_os("HOME").map(std::path::PathBuf::from);
    let named = std::path::absolute(path).unwrap_or_default();
    for way in [&*named, real] {
        for folder in way.ancestors().skip(1) {
            let Ok(metadata) = folder.metadata() else { continue };
            // In such a folder only the owner of a file replaces it.
            let mode = if metadata.mode() & STICKY == 0 { metadata.mode() } else { 0 };
            if let Some(fault) = fault_in(metadata.uid(), metadata.gid(), mode, user) {
                return Err(fault.refuse(folder, Some(real), user));
            }
            if home.as_deref() == Some(folder) {
                break;
            }
        }
    }
    Ok(())
}

/// Who else can write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Owner(u32),
    Group(u32),
    Everybody,
}

fn fault_of(file: &Metadata, user: u32) -> Option<Fault> {
    fault_in(file.uid(), file.gid(), file.mode(), user)
}

fn fault_in(owner: u32, group: u32, mode: u32, user: u32) -> Option<Fault> {
    if owner != user && owner != OF_ROOT {
        return Some(Fault::Owner(owner));
    }
    if mode & 0o002 != 0 {
        return Some(Fault::Everybody);
    }
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let is_shared = || has_others(group, user, &read("/etc/passwd"), &read("/etc/group"));
    (mode & 0o020 != 0 && is_shared()).then_some(Fault::Group(group))
}

impl Fault {
    /// The error: for a folder, with the file that can be replaced in it.
    fn refuse(self, path: &Path, file: Option<&Path>, user: u32) -> CliError {
        let accounts = Accounts::of_this_machine();
        let user_name =
            |uid| accounts.user_name(uid).map_or(format!("user {uid}"), ToString::to_string);
        let what = match file {
            Some(file) => {
                let file = Printable::path(file);
                format!("and so replace {file}, which says which commands are run")
            }
            None => "and it says which commands are run".to_owned(),
        };
        let path = Printable::path(path);
        let (message, hint) = match self {
            Self::Owner(owner) => {
                let (owner, user) = (user_name(owner), user_name(user));
                let message = match file {
                    Some(_) => format!("{owner} may write to {path}, {what}"),
                    None => format!("{path} belongs to {owner}, {what}"),
                };
                (message, format!("run `chown {user} {path}`, or run this as {owner}"))
            }
            Self::Group(group) => {
                let group =
                    accounts.group_name(group).map_or(group.to_string(), ToString::to_string);
                let message = format!("the group {group} may write to {path}, {what}");
                (message, format!("run `chmod g-w {path}`"))
            }
            Self::Everybody => {
                let message = format!("everybody may write to {path}, {what}");
                (message, format!("run `chmod o-w {path}`"))
            }
        };
        CliError::new(Exit::Failed, message, hint)
    }
}

/// Whether a group has, by these files, another member than a user and root. One that is not in them
/// may have any.
fn has_others(gid: u32, user: u32, passwd: &str, group: &str) -> bool {
    let mut own_names = vec!["root"];
    for line in passwd.lines() {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _, uid, primary, ..] = fields[..] else { continue };
        let is_own = [OF_ROOT, user].iter().any(|own| uid.parse() == Ok(*own));
        if is_own {
            own_names.push(name);
        } else if primary.parse() == Ok(gid) {
            return true;
        }
    }
    let members = group.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [_, _, number, members, ..] = fields[..] else { return None };
        (number.parse() == Ok(gid)).then_some(members)
    });
    members.is_none_or(|members| {
        let mut names = members.split(',').map(str::trim).filter(|name| !name.is_empty());
        names.any(|name| !own_names.contains(&name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0::/root:/bin/sh\nanna:x:1000:1000::/home/anna:/bin/sh\n\
                          bert:x:1001:1001::/home/bert:/bin/sh\ncarl:x:1002:1000::/:/bin/sh\nodd\n";
    const GROUP: &str =
        "root:x:0:\nanna:x:1000:\nbert:x:1001:bert,root\nstaff:x:50:bert,anna\nnone:x:60:\n";

    #[test]
    fn a_group_without_others_is_as_good_as_its_user() {
        for (gid, user, has) in [
            (0, 0, false),
            (0, 1000, false),
            (1001, 1001, false),
            (1001, 1000, true),
            // Another user has it from the beginning.
            (1000, 1000, true),
            (50, 1000, true),
            (50, 0, true),
            (60, 1000, false),
            (7777, 1000, true),
        ] {
            assert_eq!(has_others(gid, user, PASSWD, GROUP), has, "{gid} {user}");
        }
    }

    #[test]
    fn only_the_user_and_root_may_write() {
        assert_eq!(fault_in(1000, 1000, 0o644, 1000), None);
        assert_eq!(fault_in(0, 0, 0o664, 1000), None);
        assert_eq!(fault_in(1001, 1001, 0o400, 1000), Some(Fault::Owner(1001)));
        assert_eq!(fault_in(1000, 1000, 0o400, 0), Some(Fault::Owner(1000)));
        assert_eq!(fault_in(1000, 1000, 0o646, 1000), Some(Fault::Everybody));
        assert_eq!(fault_in(1000, 4_000_000, 0o660, 1000), Some(Fault::Group(4_000_000)));
    }
}
