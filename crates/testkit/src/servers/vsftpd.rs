//! vsftpd: an FTP server, with TLS if it is asked for. It lets an anonymous user in, who may write.

use std::ffi::OsStr;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Server, prepare};

/// Where Debian has it.
const PROGRAM: &str = "/usr/sbin/vsftpd";

/// A running vsftpd.
#[derive(Debug)]
pub struct Vsftpd {
    /// The server.
    pub server: Server,
    has_tls: bool,
}

/// Starts vsftpd. The test must be run by root: the server changes its user.
///
/// # Panics
///
/// If it is not installed or does not start.
pub fn vsftpd() -> Vsftpd {
    Vsftpd {
        server: Server::start(|folder, address| command(folder, address, false)),
        has_tls: false,
    }
}

/// The same over TLS, with a certificate that no machine trusts by itself. It takes no connection
/// without.
///
/// # Panics
///
/// If it is not installed or does not start.
pub fn vsftpd_tls() -> Vsftpd {
    Vsftpd {
        server: Server::start(|folder, address| command(folder, address, true)),
        has_tls: true,
    }
}

fn command(folder: &Path, address: SocketAddr, has_tls: bool) -> Command {
    // The top of what it shows must not be writable for its user, who must be able to reach it.
    fs::set_permissions(folder, PermissionsExt::from_mode(0o755)).expect("its own folder");
    let data = folder.join("data/ours");
    fs::create_dir_all(&data).expect("a folder for the files");
    prepare("chown", &[&"ftp", &data]);
    fs::create_dir_all("/var/run/vsftpd/empty").expect("the folder of Debian's, as root");
    let mut text = format!(
        "listen=YES\nlisten_address={}\nlisten_port={}\nbackground=NO\nanonymous_enable=YES\n\
         anon_root={}\nno_anon_password=YES\nwrite_enable=YES\nanon_upload_enable=YES\n\
         anon_mkdir_write_enable=YES\nanon_other_write_enable=YES\nanon_umask=022\n\
         anon_world_readable_only=NO\nlocal_enable=NO\npasv_address=127.0.0.1\nseccomp_sandbox=NO\n\
         max_clients=200\nmax_per_ip=200\nisolate=NO\nisolate_network=NO\nxferlog_enable=NO\n\
         delay_failed_login=0\nsecure_chroot_dir=/var/run/vsftpd/empty\n",
        address.ip(),
        address.port(),
        folder.join("data").display(),
    );
    if has_tls {
        let (key, certificate) = (folder.join("key.pem"), folder.join("certificate.pem"));
        if !certificate.exists() {
            let words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30 \
                         -subj /CN=vsftpd -addext basicConstraints=critical,CA:FALSE \
                         -addext subjectAltName=IP:127.0.0.1";
            let words: Vec<&str> = words.split_whitespace().collect();
            let mut all: Vec<&dyn AsRef<OsStr>> = Vec::new();
            all.extend(words.iter().map(|word| word as &dyn AsRef<OsStr>));
            all.extend([&"-keyout" as &dyn AsRef<OsStr>, &key, &"-out", &certificate]);
            prepare("openssl", &all);
        }
        text += &format!(
            "ssl_enable=YES\nallow_anon_ssl=YES\nforce_anon_data_ssl=YES\nforce_anon_logins_ssl=YES\n\
             ssl_ciphers=HIGH\nrsa_cert_file={}\nrsa_private_key_file={}\n",
            certificate.display(),
            key.display()
        );
    }
    let file = folder.join("vsftpd.conf");
    fs::write(&file, text).expect("the server's configuration");
    let mut command = Command::new(PROGRAM);
    command.arg(file);
    command
}

impl Vsftpd {
    /// The address of a folder there, to be written by a person.
    pub fn url(&self, address: SocketAddr, path: &str) -> String {
        let scheme = if self.has_tls { "ftps" } else { "ftp" };
        format!("{scheme}://{address}/ours{path}")
    }

    /// The variables that let a client in.
    pub fn variables(&self) -> Vec<(String, String)> {
        if !self.has_tls {
            return Vec::new();
        }
        let file = self.server.folder.path().join("certificate.pem");
        vec![("STRONGROOM_CA_FILE".to_owned(), file.display().to_string())]
    }

    /// The folder that holds the objects as files.
    pub fn data(&self) -> PathBuf {
        self.server.folder.path().join("data/ours")
    }
}
