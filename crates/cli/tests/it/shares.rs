//! Samba offers a mount by the configuration that `share` writes: a file of an earlier night is read
//! as a previous version.

use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use strongroom_base::Stopwatch;

use crate::images::disk_with_files;
use crate::mount::{cannot_mount, mounted_by};
use crate::world::{World, is_root, skipped};

/// Samba of its own, ended with the test.
struct Samba {
    child: Child,
    port: u16,
}

impl Samba {
    fn start(folder: &Path, config: &Path, port: u16) -> Self {
        let log = File::create(folder.join("said")).unwrap();
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "TERM", "smbd", "--foreground", "--no-process-group"])
            .arg("--configfile")
            .arg(config)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            // At its end it ends its whole group.
            .process_group(0)
            .spawn()
            .unwrap();
        let begun = Stopwatch::start();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let said = || fs::read_to_string(folder.join("said"));
            assert!(begun.elapsed() < Duration::from_secs(60), "smbd does not start: {:?}", said());
            std::thread::sleep(Duration::from_millis(50));
        }
        Self { child, port }
    }

    /// What a client says to a command on the share.
    fn client(&self, share: &str, command: &str) -> String {
        let output = Command::new("smbclient")
            .arg(format!("//127.0.0.1/{share}"))
            .args(["--port", &self.port.to_string(), "--no-pass", "--command", command])
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&said).into_owned()
    }
}

impl Drop for Samba {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}

#[test]
fn a_file_of_an_earlier_night_is_a_previous_version() {
    let reason = cannot_mount().or((!is_root()).then_some("smbd is run by root"));
    if skipped("a share", reason) {
        return;
    }
    let world = World::with_repository();
    let disk = disk_with_files(&world).display().to_string();
    let backup = || world.run(["image", "backup", "vm1", &format!("vda={disk}")]).exits(0);
    backup();
    // The name of a snapshot has whole seconds.
    std::thread::sleep(Duration::from_millis(1100));
    let script = world.path("commands");
    fs::write(&script, "rm /etc/fstab\nwrite /dev/null /etc/fstab\n").unwrap();
    let changed = Command::new("debugfs")
        .args(["-w", "-f"])
        .arg(&script)
        .arg(format!("{disk}?offset=1048576"))
        .output()
        .unwrap();
    assert!(changed.status.success(), "{changed:?}");
    backup();

    let days = world.path("days");
    world.run(["share", days.to_str().unwrap()]).exits(1).warns("strongroom mount");
    let words = ["--json", "mount", "--allow-other", days.to_str().unwrap()];
    // A sign in a path that its name in a mount writes with a percent keeps nothing from being shared.
    let odd = world.path("a_b,c");
    fs::create_dir(&odd).unwrap();
    fs::write(odd.join("file"), "odd").unwrap();
    world.run(["backup", "--host", "odd", odd.to_str().unwrap()]).exits(0);
    let (mut mount, _) = mounted_by(&mut world.command(words), &days);
    let own = world.path("samba");
    fs::create_dir(&own).unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let config = world
        .run([
            "share",
            days.to_str().unwrap(),
            "--guest",
            "--standalone",
            own.to_str().unwrap(),
            "--listen",
            &format!("127.0.0.1:{port}"),
        ])
        .exits(0)
        .out;
    let file = own.join("smb.conf");
    fs::write(&file, &config).unwrap();
    let judged = Command::new("testparm").args(["-s", file.to_str().unwrap()]).output().unwrap();
    assert!(judged.status.success(), "{judged:?}");

    let samba = Samba::start(&own, &file, port);
    let path = "vm1\\vda\\p1\\etc\\fstab";
    let got = world.path("got").display().to_string();
    let said = samba.client("vm1", &format!("get {path} {got}"));
    assert_eq!(fs::read_to_string(&got).unwrap_or(said), "", "{config}");
    let got_odd = world.path("got-odd").display().to_string();
    let path_odd = odd.join("file").display().to_string().replace('/', "\\");
    let said = samba.client("odd", &format!("get {path_odd} {got_odd}"));
    assert_eq!(fs::read_to_string(&got_odd).unwrap_or(said), "odd", "{config}");
    let versions = samba.client("vm1", &format!("allinfo {path}"));
    let earlier = versions.lines().filter_map(|line| line.trim().strip_prefix("@GMT-"));
    let earliest = earlier.min().unwrap_or_else(|| panic!("no version in {versions}"));
    let said = samba.client("vm1", &format!("get @GMT-{earliest}\\{path} {got}"));
    let read = fs::read_to_string(&got).unwrap();
    assert_eq!(read, "/dev/vda1 / ext4 defaults 0 1\n", "{said}");
    let said = samba.client("vm1", &format!("put {got} vm1\\new"));
    assert!(said.contains("NT_STATUS"), "it is read-only: {said}");
    drop(samba);
    kill_process(Pid::from_child(&mount), Signal::TERM).unwrap();
    mount.wait().unwrap();
}
