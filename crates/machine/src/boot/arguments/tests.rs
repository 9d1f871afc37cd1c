//! Plans of machines, and that QEMU takes them.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use super::*;
use crate::boot::{BootNetwork, FirmwareFolder, PrivateNetwork, SharedNetwork};
use crate::{Cpu, DiskBus, DiskDescription, NetworkDescription, Tpm};

fn options(folder: &Path) -> BootOptions {
    let firmware = tempfile::tempdir().unwrap();
    BootOptions {
        folder: folder.to_owned(),
        firmware: FirmwareFolder::create(firmware.path().join("none")).unwrap(),
        socket: folder.join("nbd"),
        memory_bytes: None,
        cpus: None,
        display: "none".to_owned(),
        network: BootNetwork::Isolated { forwards: vec![(0, 22)], shared: None },
        uses_kvm: false,
        has_agent: true,
    }
}

fn disk(name: &str) -> BootDisk {
    BootDisk { name: name.to_owned(), export: format!("vm1/{name}@0123") }
}

fn here() -> Qemu {
    Qemu::ask(Path::new("qemu-system-x86_64")).unwrap()
}

fn described(name: &str, bus: DiskBus, device: &str) -> DiskDescription {
    DiskDescription { name: name.to_owned(), bus, device: device.to_owned(), ..Default::default() }
}

fn rich() -> Description {
    let mut scsi = described("sda", DiskBus::Scsi, "scsi-hd");
    scsi.serial = Some("S,1".to_owned());
    scsi.boot_index = Some(3);
    scsi.properties = vec![
        ("rotation_rate".to_owned(), "1".to_owned()),
        ("file.filename".to_owned(), "/etc/shadow".to_owned()),
    ];
    Description {
        name: Some("mail,server".to_owned()),
        machine: Some("pc-q35-1.7".to_owned()),
        machine_options: vec![
            ("vmport".to_owned(), "off".to_owned()),
            ("dumpdtb".to_owned(), "/tmp/x".to_owned()),
        ],
        cpu: Cpu { model: Some("host,migratable=off".to_owned()), count: 2, topology: None },
        memory_bytes: Some(64 << 20),
        uuid: Some("b1a3ba4d-4f0e-4d2b-9c5a-3d64b0f6b1a2".to_owned()),
        disks: vec![
            scsi,
            described("nvme0", DiskBus::Nvme, "nvme"),
            described("hda", DiskBus::Ide, "ide-hd"),
            described("vda", DiskBus::Virtio, "vfio-pci"),
            described("stick", DiskBus::Usb, "usb-storage"),
            described("gone", DiskBus::Virtio, "virtio-blk-pci"),
            DiskDescription { is_cdrom: true, ..described("cd", DiskBus::Ide, "ide-cd") },
        ],
        networks: vec![
            NetworkDescription {
                device: "e1000".to_owned(),
                mac: Some("52:54:00:12:34:56".to_owned()),
                backend: Some("bridge".to_owned()),
            },
            NetworkDescription { device: "xen-net".to_owned(), ..Default::default() },
        ],
        tpm: Some(Tpm::default()),
        clock_base: Some("localtime".to_owned()),
        display: Some("qxl-gone".to_owned()),
        ..Description::new()
    }
}

#[test]
fn a_machine_keeps_what_its_guest_sees_and_notes_say_what_differs() {
    let disks = ["vda", "stick", "hda", "nvme0", "sda", "extra"].map(disk);
    let plan = plan(&rich(), &disks, &here(), &options(Path::new("/run/boot")));
    let arguments = plan.arguments.join(" ");
    for part in [
        "-name guest=mail,,server",
        ",vmport=off",
        "-m 64M",
        "-smp 2",
        "-cpu max",
        "-uuid b1a3ba4d-4f0e-4d2b-9c5a-3d64b0f6b1a2",
        "-rtc base=localtime",
        "virtio-scsi-pci,id=scsi-disks",
        "scsi-hd,drive=disk0,id=device0,bus=scsi-disks.0,bootindex=3,serial=S,,1,rotation_rate=1",
        "nvme,drive=disk1,id=device1,serial=nvme0",
        "usb-storage,drive=disk4,id=device4,bus=usb-disks.0",
        "virtio-blk-pci,drive=disk5,id=device5,bootindex=6",
        "user,id=net0,restrict=on,hostfwd=tcp:127.0.0.1:0-:22",
        "e1000,netdev=net0,mac=52:54:00:12:34:56,romfile=",
        "user,id=net1,restrict=on ",
        "\"export\":\"vm1/extra@0123\"",
        "\"reconnect-delay\":30",
    ] {
        assert!(arguments.contains(part), "{part}\n{arguments}");
    }
    for evil in ["shadow", "dumpdtb", "vfio", "kvm"] {
        assert!(!arguments.contains(evil), "{evil}\n{arguments}");
    }
    let notes = plan.notes.join("\n");
    let expected = ["pc-q35-1.7", "processor", "vfio-pci", "gone is not stored", "xen-net", "TPM"];
    for part in expected.iter().chain(&["qxl-gone"]) {
        assert!(notes.contains(part), "{part}\n{notes}");
    }
    assert_eq!(plan.notes.len(), 7, "{notes}");
}

#[test]
fn nothing_known_is_a_small_machine() {
    let mut options = options(Path::new("/run/boot"));
    options.network = BootNetwork::None;
    options.memory_bytes = Some((2 << 30) + 1);
    options.cpus = Some(3);
    options.uses_kvm = true;
    options.has_agent = false;
    let plan = plan(&Description::new(), &[disk("vda")], &here(), &options);
    let arguments = plan.arguments.join(" ");
    for part in ["-machine pc", "-m 2049M", "-smp 3", "-accel kvm -accel tcg", "bootindex=1"] {
        assert!(arguments.contains(part), "{part}\n{arguments}");
    }
    assert!(!arguments.contains("netdev") && !arguments.contains("agent"), "{arguments}");
    assert_eq!(plan.notes, [""; 0]);
    assert_eq!(plan.agent, None);
}

#[test]
fn firmware_that_is_stored_is_used_and_names_do_not_leave_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = options(folder.path());
    options.firmware = FirmwareFolder::create(folder.path().join("firmware")).unwrap();
    std::fs::write(folder.path().join("outside"), "").unwrap();
    let file = |name: &str, format: &str| FirmwareFile {
        name: name.to_owned(),
        path: String::new(),
        format: format.to_owned(),
    };
    options.firmware.put(&file("code.fd", "raw"), vec![]).unwrap();
    options.firmware.put(&file("vars.fd", "raw"), vec![]).unwrap();
    let flashes = |code, variables| {
        let firmware = Firmware::Uefi { code, variables };
        let description = Description { firmware, ..Description::new() };
        let plan = plan(&description, &[], &here(), &options);
        (plan.arguments.join(" "), plan.notes.join(" "))
    };
    let (stored, notes) = flashes(file("code.fd", "raw"), Some(file("vars.fd", "qcow2")));
    assert!(stored.contains("unit=0,format=raw,readonly=on,file="), "{stored}");
    assert!(stored.contains("unit=1,format=raw,readonly=off,file="), "{stored}");
    assert_eq!(notes, "");
    let (other, notes) = flashes(file("../outside", "raw"), None);
    assert!(!other.contains("outside"), "{other}");
    assert!(notes.contains("UEFI"), "{notes}");
}

/// A disk whose first sector says so on the serial port.
fn talking_disk(path: &Path, words: &str) {
    let mut sector = vec![
        0xfa, 0x31, 0xc0, 0x8e, 0xd8, // cli; xor ax, ax; mov ds, ax
        0xbe, 0x16, 0x7c, // mov si, 0x7c16
        0xba, 0xf8, 0x03, // mov dx, 0x3f8
        0xac, 0x08, 0xc0, // lodsb; or al, al
        0x74, 0x03, // jz to the halt
        0xee, // out dx, al
        0xeb, 0xf8, // jmp to lodsb
        0xf4, 0xeb, 0xfd, // hlt; jmp back
    ];
    sector.extend_from_slice(words.as_bytes());
    sector.resize(510, 0);
    sector.extend_from_slice(&[0x55, 0xaa]);
    std::fs::write(path, sector).unwrap();
    std::fs::File::options().write(true).open(path).unwrap().set_len(1 << 20).unwrap();
}

#[test]
fn a_machine_of_many_devices_starts_says_its_words_and_is_pictured() {
    use std::sync::Arc;

    use strongroom_nbd::{Export, Exports, FileExport, Listener, Overlay, Server, ServerOptions};

    use crate::boot::{BootError, Running, Sign};

    struct Disks(PathBuf);
    impl Exports for Disks {
        fn names(&self) -> std::io::Result<Vec<String>> {
            Ok(Vec::new())
        }
        fn open(&self, name: &str) -> std::io::Result<Arc<dyn Export>> {
            let base = Arc::new(FileExport::open(&self.0.join("disk.raw"))?);
            let path = self.0.join(name.replace('/', "-"));
            let overlay = Overlay::open(&path, base, [0; 32]).map_err(std::io::Error::other)?;
            Ok(Arc::new(overlay))
        }
    }

    let folder = tempfile::tempdir().unwrap();
    talking_disk(&folder.path().join("disk.raw"), "it lives\r\n");
    let options = options(folder.path());
    let listener = Listener::unix(&options.socket).unwrap();
    let disks = Arc::new(Disks(folder.path().to_owned()));
    let _server = Server::start(listener, disks, ServerOptions::default()).unwrap();
    let mut description = rich();
    description.disks.retain(|disk| disk.name != "stick");
    let boot_disks = ["hda", "sda", "nvme0", "vda"].map(disk);
    let ready = plan(&description, &boot_disks, &here(), &options);
    let words = ["it lives".to_owned(), "it dies".to_owned()];
    let mut running = Running::start(&ready, &words, Box::new(|_| {})).unwrap();
    let lives = Sign::Words("it lives".to_owned());
    for _ in 0..600 {
        if running.shows(&lives).unwrap() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(running.shows(&lives).unwrap(), "{}", running.console.text());
    assert!(!running.shows(&Sign::Words("it dies".to_owned())).unwrap());
    assert!(!running.shows(&Sign::Port(22)).unwrap(), "QEMU accepts, the guest does not");
    assert!(!running.is_kvm());
    let picture = folder.path().join("screen.png");
    running.picture(&picture).unwrap();
    assert!(std::fs::read(&picture).unwrap().starts_with(b"\x89PNG"));
    assert_eq!(running.end(), "");

    // What QEMU refuses is said in its words.
    let mut wrong = ready;
    wrong.arguments.extend(["-device".to_owned(), "no-such-device".to_owned()]);
    let refused = Running::start(&wrong, &[], Box::new(|_| {})).err();
    assert!(
        matches!(&refused, Some(BootError::Ended { complaint, .. })
        if complaint.contains("no-such-device")),
        "{refused:?}"
    );
}

#[test]
fn a_machine_of_a_set_has_a_gateway_of_its_own_and_a_wire() {
    let mut network = PrivateNetwork::default();
    let folder = Path::new("/run/boot");
    let mut plan_of = |place, address, taken: &[&str]| {
        let shared = SharedNetwork {
            wire: network.wire().unwrap(),
            place,
            address,
            neighbours: vec![Ipv4Addr::new(192, 168, 1, 2), Ipv4Addr::new(192, 168, 1, 253)],
            taken: taken.iter().map(|&taken| taken.to_owned()).collect(),
        };
        let network = BootNetwork::Isolated { forwards: vec![(0, 80)], shared: Some(shared) };
        let options = BootOptions { network, ..options(folder) };
        plan(&rich(), &[], &here(), &options)
    };
    let second = plan_of(1, None, &["52:54:00:aa:bb:cc"]);
    let arguments = second.arguments.join(" ");
    for part in [
        "user,id=gateway,restrict=on,ipv6=off,dhcpstart=10.0.2.16,hostfwd=tcp:127.0.0.1:0-:80 ",
        "socket,id=net0,fd=",
        "e1000,netdev=net0,mac=52:54:00:12:34:56,",
        "user,id=net1,restrict=on ",
    ] {
        assert!(arguments.contains(part), "{part}\n{arguments}");
    }
    assert!(second.card_addresses.contains(&"52:54:00:12:34:56".to_owned()));
    let third = plan_of(2, Some("192.168.1.2".parse().unwrap()), &["52:54:00:12:34:56"]);
    let arguments = third.arguments.join(" ");
    for part in [
        "net=192.168.1.0/24,host=192.168.1.254,dns=192.168.1.252,dhcpstart=192.168.1.2,hostfwd=",
        "e1000,netdev=net0,mac=52:54:00:5e:02:00,",
    ] {
        assert!(arguments.contains(part), "{part}\n{arguments}");
    }
    assert!(third.notes.iter().any(|note| note.contains("another machine of the set")));
}

/// The program that QEMU's cards have for booting from a network gets its address from the gateway,
/// and then asks a neighbour for a file, over a connection.
#[test]
fn machines_of_a_set_reach_one_another() {
    use std::time::Duration;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::net::{RecvFlags, SendFlags, recv, send};

    use crate::boot::Running;

    const NEIGHBOUR: [u8; 6] = [0x52, 0x54, 0, 0, 0, 9];
    const NEIGHBOUR_ADDRESS: [u8; 4] = [10, 0, 2, 99];
    const ASKING: &[u8] = &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1];

    let folder = tempfile::tempdir().unwrap();
    let mut network = PrivateNetwork::default();
    let neighbour = network.wire().unwrap();
    let card = neighbour.card();
    let wire = network.wire().unwrap();
    let (address, neighbours, taken) = (None, Vec::new(), Vec::new());
    let shared = SharedNetwork { wire, place: 1, address, neighbours, taken };
    let network_options = BootNetwork::Isolated { forwards: Vec::new(), shared: Some(shared) };
    let options = BootOptions { network: network_options, ..options(folder.path()) };
    let mut ready = plan(&Description::new(), &[], &here(), &options);
    for argument in &mut ready.arguments {
        if argument.starts_with("user,id=gateway") {
            argument.push_str(",bootfile=http://10.0.2.99/hello");
        }
        *argument = argument.replace(",romfile=", "");
    }
    ready.arguments.extend(["-boot", "n"].map(str::to_owned));
    let mut running = Running::start(&ready, &[], Box::new(|_| {})).unwrap();
    let begun = strongroom_base::Stopwatch::start();
    let mut buffer = vec![0; 2048];
    loop {
        assert!(begun.elapsed() < Duration::from_secs(120), "it asks no neighbour");
        assert!(running.ended().unwrap().is_none(), "it ended");
        let soon = Timespec::try_from(Duration::from_secs(1)).unwrap();
        if poll(&mut [PollFd::new(card, PollFlags::IN)], Some(&soon)).unwrap() == 0 {
            continue;
        }
        let (length, _) = recv(card, &mut buffer[..], RecvFlags::empty()).unwrap();
        let frame = &buffer[..length];
        // ARP: who has the neighbour's address?
        if frame[12..].starts_with(ASKING) && frame[38..42] == NEIGHBOUR_ADDRESS {
            let (asker, asker_address) = (&frame[22..28], &frame[28..32]);
            assert_eq!(asker_address, [10, 0, 2, 16]);
            let mut answer = [asker, &NEIGHBOUR, ASKING, &NEIGHBOUR, &NEIGHBOUR_ADDRESS].concat();
            answer[21] = 2;
            answer.extend_from_slice(&frame[22..32]);
            send(card, &answer, SendFlags::empty()).unwrap();
        }
        if !frame.starts_with(&NEIGHBOUR) {
            continue;
        }
        let (tcp, flags) = (&frame[34..], frame[34 + 13]);
        assert_eq!(flags & 0b100, 0, "it was refused");
        if flags & 0b10 != 0 {
            send(card, &accepting(frame), SendFlags::empty()).unwrap();
        } else if tcp.windows(10).any(|part| part == b"GET /hello") {
            break;
        }
    }
    assert_eq!(running.end(), "");
}

/// The second frame of a connection of TCP over IPv4, after the first.
fn accepting(first: &[u8]) -> Vec<u8> {
    let mut next = first[38..42].to_vec();
    for byte in next.iter_mut().rev() {
        *byte = byte.wrapping_add(1);
        if *byte != 0 {
            break;
        }
    }
    let mut answer = [&first[6..12], &first[..6], &[8, 0]].concat();
    let mut header = vec![0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0];
    header.extend_from_slice(&first[30..34]);
    header.extend_from_slice(&first[26..30]);
    let sum = sum_of(&header);
    header[10..12].copy_from_slice(&sum);
    let mut tcp = [&first[36..38], &first[34..36], &[0, 0, 0, 7][..]].concat();
    tcp.extend_from_slice(&next);
    tcp.extend_from_slice(&[0x50, 0b10010, 0xff, 0xff, 0, 0, 0, 0]);
    let sum = sum_of(&[&header[12..20], &[0, 6, 0, 20], &tcp[..]].concat());
    tcp[16..18].copy_from_slice(&sum);
    answer.extend_from_slice(&header);
    answer.extend_from_slice(&tcp);
    answer
}

/// The sum of the internet: of an even number of bytes.
fn sum_of(bytes: &[u8]) -> [u8; 2] {
    let words = bytes.chunks_exact(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let sum = !sum;
    [(sum >> 8) as u8, sum as u8]
}
