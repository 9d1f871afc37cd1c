//! What this machine and its user are called, and how many threads use it well.

use std::path::PathBuf;

use strongroom_source::Accounts;

/// The name of this machine.
pub fn host_name() -> String {
    let system = rustix::system::uname();
    let name = system.nodename().to_string_lossy();
    if name.is_empty() { "localhost".to_owned() } else { name.into_owned() }
}

/// The name of the user whose rights this process has, or the user's number.
pub fn user_name() -> String {
    let uid = rustix::process::geteuid().as_raw();
    let accounts = Accounts::of_this_machine();
    accounts.user_name(uid).map_or(uid.to_string(), ToString::to_string)
}

/// How many threads read, decode and write: one per core, and those that wait for a disk meanwhile.
pub fn restore_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from) + 2
}

/// Where this user's programs remember what they did; none without a home.
pub fn state_folder() -> Option<PathBuf> {
    let absolute = |name| {
        std::env::var_os(name).map(PathBuf::from).filter(|path: &PathBuf| path.is_absolute())
    };
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
    // A service of the machine has no home.
    let of_root = || rustix::process::geteuid().is_root().then(|| PathBuf::from("/var/lib"));
    Some(state.or_else(of_root)?.join("strongroom"))
}
