//! OpenSSH's own server, for the user that runs the test and for one key.

use std::ffi::OsStr;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use super::{Server, prepare};

/// Where Debian has it.
const PROGRAM: &str = "/usr/sbin/sshd";
/// The server of SFTP that is a part of sshd.
const OF_ITS_OWN: &str = "internal-sftp";

/// A running sshd.
#[derive(Debug)]
pub struct Sshd {
    /// The server.
    pub server: Server,
}

/// Starts sshd. With `forced`, a client gets this command instead of the one that it asks for.
///
/// # Panics
///
/// If it is not installed or does not start.
pub fn sshd(forced: Option<&str>) -> Sshd {
    start(forced, OF_ITS_OWN)
}

/// Starts sshd with this command as its server of SFTP.
///
/// # Panics
///
/// As [`sshd`].
pub fn sshd_with(sftp: &str) -> Sshd {
    start(None, sftp)
}

fn start(forced: Option<&str>, sftp: &str) -> Sshd {
    let server = Server::start(|folder, address| command(folder, address, forced, sftp));
    let sshd = Sshd { server };
    sshd.trust(sshd.server.address);
    sshd
}

fn command(folder: &Path, address: SocketAddr, forced: Option<&str>, sftp: &str) -> Command {
    for key in ["host", "user"] {
        if !folder.join(key).exists() {
            let args: [&dyn AsRef<OsStr>; 7] =
                [&"-q", &"-t", &"ed25519", &"-N", &"", &"-f", &folder.join(key)];
            prepare("ssh-keygen", &args);
        }
    }
    // The server's parent process wants this folder of Debian's.
    fs::create_dir_all("/run/sshd").expect("the folder for sshd, which only root can make");
    let key = fs::read_to_string(folder.join("user.pub")).expect("a key that was just made");
    let options = forced.map(|line| format!("restrict,command=\"{line}\" ")).unwrap_or_default();
    fs::write(folder.join("authorized_keys"), format!("{options}{key}")).expect("its file");
    let text = format!(
        "ListenAddress {address}\nHostKey {0}/host\nPidFile {0}/pid\nAuthorizedKeysFile {0}/authorized_keys\n\
         StrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\n\
         MaxStartups 100\nMaxSessions 100\nPrintMotd no\nSubsystem sftp {sftp}\n",
        folder.display()
    );
    let file = folder.join("sshd_config");
    fs::write(&file, text).expect("the server's configuration");
    let mut command = Command::new(PROGRAM);
    command.args(["-D", "-e", "-f"]).arg(file);
    command
}

impl Sshd {
    /// The address of a path there, to be written by a person. The path begins with a slash for the
    /// user's home folder, and with two for the top.
    pub fn url(&self, scheme: &str, address: SocketAddr, path: &str) -> String {
        format!("{scheme}://{address}{path}")
    }

    /// The variables that let a client in.
    pub fn variables(&self) -> Vec<(String, String)> {
        let folder = self.server.folder.path().display();
        let line = format!(
            "ssh -F none -i {folder}/user -oIdentitiesOnly=yes -oUserKnownHostsFile={folder}/known"
        );
        vec![("STRONGROOM_SSH".to_owned(), line)]
    }

    /// Makes clients trust this server under another address too, such as that of a relay.
    pub fn trust(&self, address: SocketAddr) {
        let folder = self.server.folder.path();
        let key = fs::read_to_string(folder.join("host.pub")).expect("a key that was made");
        let file = folder.join("known");
        let before = fs::read_to_string(&file).unwrap_or_default();
        let line = format!("[{}]:{} {key}", address.ip(), address.port());
        fs::write(file, before + &line).expect("the list of known hosts");
    }

    /// Gives the server another host key, which no client trusts, and starts it again.
    pub fn change_host_key(&mut self) {
        let folder = self.server.folder.path();
        for file in ["host", "host.pub"] {
            fs::remove_file(folder.join(file)).expect("a key that was made");
        }
        self.server.restart(|folder, address| command(folder, address, None, OF_ITS_OWN));
    }
}
