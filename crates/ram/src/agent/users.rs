//! Whose buckets are whose. A connection is of the user that the kernel names (`SO_PEERCRED`), and each
//! user has files of their own: the file `orders` of user 1000 is the file `orders@1000` of the agent.
//! So what a program says and asks is about buckets of its own user alone, with any names that it knows.
//!
//! Programs of root and of the agent's own user are the exception: they could read and change all that
//! the agent has in other ways. Their files are called as they say, and so they reach those of others.

use strongroom_cluster::FileName;

use super::Agent;

/// Of connections and of areas, a user may have one in this many; of jobs more, as `count` says.
const SHARE: usize = 4;

/// The name under which the agent has the file of a program.
///
/// # Errors
///
/// There is no room for the number of the user.
pub fn file_of(user: u32, own: u32, file: String) -> Result<String, String> {
    if is_trusted(user, own) {
        return Ok(file);
    }
    let named = format!("{file}@{user}");
    match FileName::new(&named) {
        Ok(_) => Ok(named),
        Err(_) => Err(format!(
            "files of user {user} are called NAME@{user} here, and \"{file}\" is too long for that: \
             choose a shorter name"
        )),
    }
}

/// Whether a user has no more than its own files.
fn is_trusted(user: u32, own: u32) -> bool {
    user == 0 || user == own
}

/// The user of this process.
pub fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

impl Agent {
    /// What a user may have, of what there is for all: so one keeps no other out.
    pub(super) fn share_of(&self, user: u32, of_all: usize) -> usize {
        match is_trusted(user, self.user) {
            true => of_all,
            false => (of_all / SHARE).max(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_1_10_each_user_has_files_of_their_own() {
        let named = |user, own, file: &str| file_of(user, own, file.to_owned());
        for (user, own, file, is) in [
            (0, 0, "orders", "orders"),
            (0, 500, "orders", "orders"),
            (500, 500, "orders", "orders"),
            (1000, 500, "orders", "orders@1000"),
            (1000, 0, "orders@1001", "orders@1001@1000"),
            (0, 0, "orders@1000", "orders@1000"),
        ] {
            assert_eq!(named(user, own, file).as_deref(), Ok(is), "{user} {own} {file}");
        }
        assert!(named(1000, 0, &"x".repeat(59)).is_ok());
        assert!(named(1000, 0, &"x".repeat(60)).unwrap_err().contains("too long"));
    }
}
