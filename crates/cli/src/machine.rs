//! What this machine and its user are called.

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
