//! Our server, by the tools of QEMU, libnbd and nbdkit.

use std::path::Path;
use std::sync::Arc;

use strongroom_nbd::{Export, FileExport, Listener, Overlay, Server, ServerOptions};
use strongroom_testkit::Random;

use crate::world::{Named, Ours, Theirs, lacks, run, sparse_image};

/// Not a multiple of a block or of a page.
const BYTES: u64 = (24 << 20) + 512 * 3;

fn image(folder: &Path) -> (String, Vec<u8>) {
    let path = folder.join("disk.raw");
    let content = sparse_image(&path, 1, BYTES);
    (path.to_str().unwrap().to_owned(), content)
}

fn serve(path: &str) -> Ours {
    let export = FileExport::open(Path::new(path)).unwrap();
    Ours::start(Named::one("vm1/disk0@2026-11-20", export), ServerOptions::default())
}

#[test]
fn qemu_reads_what_the_file_has() {
    if lacks(&["qemu-img"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (path, content) = image(folder.path());
    let ours = serve(&path);
    let uri = ours.uri("vm1/disk0@2026-11-20");
    run("qemu-img", &["compare", "-f", "raw", "-F", "raw", &path, &uri]);
    let copy = folder.path().join("copy.raw");
    run("qemu-img", &["convert", "-f", "raw", "-O", "raw", &uri, copy.to_str().unwrap()]);
    assert!(std::fs::read(&copy).unwrap() == content);
    let map = |of: &str| {
        let map = run("qemu-img", &["map", "-f", "raw", "--output=json", of]);
        // The offset in the file is what only a file has, and so is its end.
        let keep = |line: &&str| line.contains("start");
        let cut = |line: &str| {
            let line = line.split(", \"offset\"").next().unwrap();
            line.trim_end_matches(['}', ',', ']']).trim_start_matches('[').to_owned()
        };
        map.lines().filter(keep).map(cut).collect::<Vec<_>>()
    };
    let (of_file, of_export) = (map(&path), map(&uri));
    assert!(of_file.len() > 20);
    assert_eq!(of_file, of_export);
    ours.wait_until_empty();
}

#[test]
fn libnbd_copies_and_describes() {
    if lacks(&["nbdinfo", "nbdcopy"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (path, content) = image(folder.path());
    let ours = serve(&path);
    let uri = ours.uri("vm1/disk0@2026-11-20");
    let facts = run("nbdinfo", &["--json", &uri]);
    for fact in [
        "\"protocol\": \"newstyle-fixed\"",
        "\"structured\": true",
        &format!("\"export-size\": {BYTES}"),
        "\"base:allocation\"",
        "\"is_read_only\": true",
        "\"can_multi_conn\": true",
        "\"can_cache\": true",
        "\"can_df\": true",
        "\"can_trim\": false",
    ] {
        assert!(facts.contains(fact), "{fact}: {facts}");
    }
    for options in [&["--request-size=33554432"][..], &["--connections=4", "--requests=32"], &[]] {
        let copy = folder.path().join("copy.raw");
        let mut arguments = options.to_vec();
        arguments.extend([uri.as_str(), copy.to_str().unwrap()]);
        run("nbdcopy", &arguments);
        assert!(std::fs::read(&copy).unwrap() == content, "{options:?}");
    }
    let map = run("nbdinfo", &["--map", &uri]);
    assert!(map.contains("hole,zero") && map.contains("data"), "{map}");
    let missing = std::process::Command::new("nbdinfo").arg(ours.uri("other")).output().unwrap();
    assert!(!missing.status.success());
    ours.wait_until_empty();
}

#[test]
fn many_exports_are_listed() {
    if lacks(&["nbdinfo", "qemu-nbd"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (path, _) = image(folder.path());
    let export: Arc<dyn Export> = Arc::new(FileExport::open(Path::new(&path)).unwrap());
    let names = (0..5000).map(|night| (format!("vm1/disk0@{night:04}"), export.clone()));
    let ours = Ours::start(Arc::new(Named(names.collect())), ServerOptions::default());
    let list = run("qemu-nbd", &["-L", "-k", ours.socket().to_str().unwrap()]);
    assert!(list.contains("exports available: 5000"));
    assert_eq!(list.matches("export: 'vm1/disk0@").count(), 5000);
}

#[test]
fn tcp_is_served_on_the_loopback_only() {
    if lacks(&["nbdinfo"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (path, _) = image(folder.path());
    assert!(Listener::tcp(([0, 0, 0, 0], 0).into()).is_err());
    let listener = Listener::tcp(([127, 0, 0, 1], 0).into()).unwrap();
    let address = listener.address().unwrap();
    let exports = Named::one("disk", FileExport::open(Path::new(&path)).unwrap());
    let server = Server::start(listener, exports, ServerOptions::default()).unwrap();
    let size = run("nbdinfo", &["--size", &format!("nbd://{address}/disk")]);
    assert_eq!(size.trim(), BYTES.to_string());
    assert!(server.stop());
}

#[test]
fn nbdkit_goes_between() {
    if lacks(&["nbdkit"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (path, content) = image(folder.path());
    let ours = serve(&path);
    let socket = format!("socket={}", ours.socket().display());
    let theirs = Theirs::nbdkit(&["nbd", &socket, "export=vm1/disk0@2026-11-20"]);
    let client = theirs.client("", &["base:allocation"]);
    let mut read = vec![0; content.len()];
    client.read_at(0, &mut read).unwrap();
    assert!(read == content);
    assert!(client.block_status("base:allocation", 0..BYTES).unwrap().count() > 10);
}

/// QEMU writes to an overlay and to a plain file what comes from a seed; both must be equal, also
/// after the overlay was closed and opened again.
#[test]
fn qemu_writes_to_an_overlay() {
    if lacks(&["qemu-img", "qemu-io"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (path, _) = image(folder.path());
    let plain = folder.path().join("plain.raw");
    std::fs::copy(&path, &plain).unwrap();
    let plain = plain.to_str().unwrap();
    let before = std::fs::read(&path).unwrap();
    let open = || {
        let base = Arc::new(FileExport::open(Path::new(&path)).unwrap());
        let overlay = Overlay::open(&folder.path().join("overlay"), base, [7; 32]).unwrap();
        Ours::start(Named::one("", overlay), ServerOptions::default())
    };
    let mut random = Random::new(3);
    for _ in 0..4 {
        let ours = open();
        let uri = ours.uri("");
        let mut script = Vec::new();
        for _ in 0..60 {
            let offset = random.below(BYTES / 512) * 512;
            let bytes = (512 + random.below(400) * 512).min(BYTES - offset);
            let pattern = random.below(256);
            script.push(match random.below(6) {
                0 => format!("write -z {offset} {bytes}"),
                1 => format!("write -z -u {offset} {bytes}"),
                2 => format!("write -f -P {pattern} {offset} {bytes}"),
                3 => "flush".to_owned(),
                _ => format!("write -P {pattern} {offset} {bytes}"),
            });
        }
        for target in [uri.as_str(), plain] {
            let mut arguments = vec!["-f", "raw"];
            script.iter().for_each(|line| arguments.extend(["-c", line]));
            arguments.push(target);
            let words = run("qemu-io", &arguments);
            assert!(!words.contains("failed"), "{words}");
        }
        run("qemu-img", &["compare", "-f", "raw", "-F", "raw", plain, &uri]);
        ours.wait_until_empty();
        assert!(ours.server.stop());
    }
    run("qemu-img", &["compare", "-f", "raw", "-F", "raw", plain, &open().uri("")]);
    assert!(std::fs::read(&path).unwrap() == before, "the base is never written");
}

#[test]
fn a_disk_is_copied_into_an_overlay() {
    if lacks(&["nbdcopy", "qemu-img"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (path, _) = image(folder.path());
    let empty = folder.path().join("empty.raw");
    std::fs::File::create(&empty).unwrap().set_len(BYTES).unwrap();
    let base = Arc::new(FileExport::open(&empty).unwrap());
    let overlay = Overlay::open(&folder.path().join("overlay"), base, [7; 32]).unwrap();
    let ours = Ours::start(Named::one("", overlay), ServerOptions::default());
    run("nbdcopy", &["--flush", "--connections=4", &path, &ours.uri("")]);
    run("qemu-img", &["compare", "-f", "raw", "-F", "raw", &path, &ours.uri("")]);
}
