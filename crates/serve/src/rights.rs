//! Who may do what: a role allows verbs, folder by folder.
//!
//! |            | list, size, proof | read | create | remove, replace, copy, lock |
//! |------------|---|---|---|---|
//! | `put-only` | all | all but the blocks of arenas | new arenas, sessions, snapshots | its own sessions |
//! | `append`   | all | all | new arenas, sessions, snapshots | its own sessions |
//! | `restore`  | all | all | – | – |
//! | `audit`    | all | all but the blocks of arenas | – | – |
//! | `keep`     | all | all | all but keys and the configuration | all but these |
//! | `admin`    | all | all | all | all |
//!
//! A client with `put-only` reads the front of arenas: their summaries say which chunks are known,
//! and open only with a key of its own domain. No block leaves the server. A request that begins in
//! the front and ends in the blocks is refused, not cut short: what is sent is all that was asked for.
//!
//! Notes about a name (`agreed-XX/`) are for those who replace objects: `keep` and `admin`, and to each of
//! them about what it may change itself.
//!
//! An arena is new in its first generation. The next ones replace it, so only who may replace and
//! remove objects creates them.

use std::fmt;
use std::str::FromStr;

use strongroom_arena::ARENAS_FOLDER;
use strongroom_repository::objects::{KEYS_FOLDER, SESSIONS_FOLDER, SNAPSHOTS_FOLDER};

/// What a client that was let in may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Back up, and read nothing back.
    PutOnly,
    /// Back up and restore.
    Append,
    /// Restore.
    Restore,
    /// Verify.
    Audit,
    /// Back up, restore, forget, prune and repair.
    Keep,
    /// Everything: `init` and keys too.
    Admin,
}

/// What is done to an object, or to a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// Its name and size are shown, or a proof of its bytes.
    See,
    /// Its bytes are read.
    Read,
    /// It is created.
    Create,
    /// It is replaced by other bytes.
    Replace,
    /// It is removed.
    Remove,
    /// It is locked until a time.
    Retain,
}

impl Role {
    /// All of them, in the order of what they may do.
    pub const ALL: [Self; 6] =
        [Self::PutOnly, Self::Append, Self::Restore, Self::Audit, Self::Keep, Self::Admin];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PutOnly => "put-only",
            Self::Append => "append",
            Self::Restore => "restore",
            Self::Audit => "audit",
            Self::Keep => "keep",
            Self::Admin => "admin",
        }
    }

    /// Whether it may do this to the objects of a folder. Its own sessions, which it may remove, are
    /// not considered here.
    pub fn may(self, verb: Verb, folder: &str) -> bool {
        let is_vital = folder.is_empty() || folder == KEYS_FOLDER;
        let is_backup = [ARENAS_FOLDER, SESSIONS_FOLDER, SNAPSHOTS_FOLDER].contains(&folder);
        match (self, verb) {
            (Self::Admin, _) | (_, Verb::See) => true,
            (_, Verb::Read) => folder != ARENAS_FOLDER || self.reads_blocks(),
            (Self::Keep, _) => !is_vital,
            (Self::PutOnly | Self::Append, Verb::Create) => is_backup,
            _ => false,
        }
    }

    /// Whether the blocks of arenas may leave the server for it.
    pub fn reads_blocks(self) -> bool {
        !matches!(self, Self::PutOnly | Self::Audit)
    }

    /// Whether it may create the next generations of arenas: these take the place of the first.
    pub fn rewrites_arenas(self) -> bool {
        self.may(Verb::Replace, ARENAS_FOLDER)
    }

    /// Whether it may end the sessions of others.
    pub fn ends_sessions(self) -> bool {
        matches!(self, Self::Keep | Self::Admin)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|role| role.as_str() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::as_str).join(", ");
            format!("{text} is no role; the roles are {names}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_allow_what_the_table_says_and_nothing_else() {
        use Verb::{Create, Read, Remove, Replace, Retain, See};
        let folders =
            ["", "keys", "arenas", "sessions", "snapshots", "collections", "forgotten", "vouchers"];
        let backup = ["arenas", "sessions", "snapshots"];
        for role in Role::ALL {
            assert_eq!(role.as_str().parse::<Role>().unwrap(), role);
            for folder in folders {
                let is_vital = ["", "keys"].contains(&folder);
                for verb in [See, Read, Create, Replace, Remove, Retain] {
                    let expected = match (role.as_str(), verb) {
                        ("admin", _) | (_, See) => true,
                        ("put-only" | "audit", Read) => folder != "arenas",
                        (_, Read) => true,
                        ("keep", _) => !is_vital,
                        ("put-only" | "append", Create) => backup.contains(&folder),
                        _ => false,
                    };
                    assert_eq!(role.may(verb, folder), expected, "{role} {verb:?} {folder:?}");
                }
            }
        }
    }
}
