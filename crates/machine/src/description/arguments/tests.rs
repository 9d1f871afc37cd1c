//! Command lines of people, of libvirt and of Proxmox.

use proptest::prelude::*;

use super::*;

fn describe(line: &str) -> Description {
    let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    Description::from_arguments(&arguments)
}

/// Name, bus, device, controller, serial and path of each disk.
type Shown<'a> = (&'a str, DiskBus, &'a str, Option<&'a str>, Option<&'a str>, Option<&'a str>);

fn disks(description: &Description) -> Vec<Shown<'_>> {
    let disks = description.disks.iter();
    let fields = disks.map(|disk| {
        (
            disk.name.as_str(),
            disk.bus,
            disk.device.as_str(),
            disk.controller.as_deref(),
            disk.serial.as_deref(),
            disk.path.as_deref(),
        )
    });
    fields.collect()
}

#[test]
fn a_line_typed_by_a_person() {
    let description = describe(
        "-enable-kvm -name web,process=x -m 2G -smp 2 -cpu host a.img -cdrom debian.iso \
         -drive file=b.qcow2,if=virtio,serial=B -drive file=c.qcow2,if=virtio -vga std",
    );
    assert!(description.emulator.is_kvm);
    assert_eq!(description.name.as_deref(), Some("web"));
    assert_eq!(description.memory_bytes, Some(2 << 30));
    let cpu = Cpu { model: Some("host".to_owned()), count: 2, topology: None };
    assert_eq!(description.cpu, cpu);
    assert_eq!(
        disks(&description),
        [
            ("ide0-hd0", DiskBus::Ide, "ide-hd", None, None, Some("a.img")),
            ("ide1-cd0", DiskBus::Ide, "ide-cd", None, None, Some("debian.iso")),
            ("virtio0", DiskBus::Virtio, "virtio-blk-pci", None, Some("B"), Some("b.qcow2")),
            ("virtio1", DiskBus::Virtio, "virtio-blk-pci", None, None, Some("c.qcow2")),
        ]
    );
    let network = &description.networks[0];
    assert_eq!(
        (network.device.as_str(), network.mac.as_deref()),
        ("e1000", Some("52:54:00:12:34:56"))
    );
    assert_eq!(description.firmware, Firmware::Bios { file: None });
    assert_eq!(description.display.as_deref(), Some("std"));
    assert_eq!(description.arguments.len(), 18);
}

#[test]
fn a_line_of_libvirt() {
    let description = describe(
        r#"-name guest=vm1,debug-threads=on
        -blockdev {"driver":"file","filename":"/usr/share/OVMF/CODE.fd","node-name":"p0s"}
        -blockdev {"node-name":"p0","read-only":true,"driver":"raw","file":"p0s"}
        -blockdev {"driver":"file","filename":"/var/nvram/vm1_VARS.qcow2","node-name":"p1s"}
        -blockdev {"node-name":"p1","read-only":false,"driver":"qcow2","file":"p1s"}
        -machine pc-q35-7.2,usb=off,smm=on,pflash0=p0,pflash1=p1,memory-backend=pc.ram -accel kvm
        -cpu Skylake-Client,hle=off -m size=4194304k,slots=16
        -smp 4,sockets=1,cores=2,threads=2 -uuid c7a5fdbd-edaf-9455-926a-d65c16db1809
        -no-user-config -nodefaults -rtc base=localtime,driftfix=slew
        -device {"driver":"virtio-scsi-pci","id":"scsi0","bus":"pci.3"}
        -blockdev {"driver":"file","filename":"/images/a,b.qcow2","node-name":"s1"}
        -blockdev {"node-name":"f1","driver":"qcow2","file":"s1","backing":null}
        -device {"driver":"scsi-hd","bus":"scsi0.0","lun":0,"drive":"f1","id":"scsi0-0-0-0","serial":"S1","bootindex":1}
        -device {"driver":"ide-cd","bus":"ide.0","id":"sata0-0-0"}
        -netdev {"type":"tap","fd":"35","id":"hostnet0"}
        -device {"driver":"virtio-net-pci","netdev":"hostnet0","mac":"52:54:00:6d:90:02"}
        -chardev socket,id=chrtpm,path=/run/swtpm.sock -tpmdev emulator,id=tpm0,chardev=chrtpm
        -device {"driver":"tpm-crb","tpmdev":"tpm0","id":"t"} -device virtio-vga,id=video0"#,
    );
    assert_eq!(description.machine.as_deref(), Some("pc-q35-7.2"));
    let options = [("usb", "off"), ("smm", "on")].map(|(k, v)| (k.to_owned(), v.to_owned()));
    assert_eq!(description.machine_options, options);
    assert_eq!(description.memory_bytes, Some(4 << 30));
    assert_eq!(description.cpu.topology, Some((1, 2, 2)));
    let file = |name: &str, path: &str, format: &str| FirmwareFile {
        name: name.to_owned(),
        path: path.to_owned(),
        format: format.to_owned(),
    };
    let firmware = Firmware::Uefi {
        code: file("uefi-code.fd", "/usr/share/OVMF/CODE.fd", "raw"),
        variables: Some(file("uefi-variables.fd", "/var/nvram/vm1_VARS.qcow2", "qcow2")),
    };
    assert_eq!(description.firmware, firmware);
    assert_eq!(
        disks(&description),
        [
            (
                "scsi0-0-0-0",
                DiskBus::Scsi,
                "scsi-hd",
                Some("virtio-scsi-pci"),
                Some("S1"),
                Some("/images/a,b.qcow2")
            ),
            ("sata0-0-0", DiskBus::Ide, "ide-cd", None, None, None),
        ]
    );
    assert_eq!(description.disks[0].boot_index, Some(1));
    assert_eq!(description.disks[0].properties, [("lun".to_owned(), "0".to_owned())]);
    assert_eq!(description.networks[0].backend.as_deref(), Some("tap"));
    let tpm = description.tpm.unwrap();
    assert_eq!((tpm.device.as_str(), tpm.backend.as_str()), ("tpm-crb", "emulator"));
    assert_eq!(description.clock_base.as_deref(), Some("localtime"));
    assert_eq!(description.display.as_deref(), Some("virtio-vga"));
}

#[test]
fn a_line_of_proxmox() {
    let description = describe(
        "-id 100 -name vm,debug-threads=on -no-shutdown -daemonize -smbios type=1,uuid=1d6f -nodefaults \
         -drive if=pflash,unit=0,format=raw,readonly=on,file=/usr/share/OVMF_CODE.fd \
         -drive if=pflash,unit=1,id=drive-efidisk0,format=raw,file=/dev/pve/efi,size=540672 \
         -smp 1,sockets=1,cores=1,maxcpus=1 -m 512 -device virtio-scsi-pci,id=virtioscsi0,bus=pci.3 \
         -drive file=/dev/pve/vm-100,if=none,id=drive-scsi0,format=raw,cache=none \
         -device scsi-hd,bus=virtioscsi0.0,drive=drive-scsi0,id=scsi0,bootindex=100,rotation_rate=1 \
         -netdev type=tap,id=net0 -device e1000,mac=BC:24:11:00:00:01,netdev=net0 \
         -machine type=pc+pve0",
    );
    assert_eq!(description.uuid.as_deref(), Some("1d6f"));
    let Firmware::Uefi { variables: Some(variables), .. } = &description.firmware else { panic!() };
    assert_eq!(variables.path, "/dev/pve/efi");
    assert_eq!(description.disks.len(), 1);
    assert_eq!(description.disks[0].name, "scsi0");
    assert_eq!(description.disks[0].format.as_deref(), Some("raw"));
    assert_eq!(description.disks[0].properties, [("rotation_rate".to_owned(), "1".to_owned())]);
    assert_eq!(description.networks[0].mac.as_deref(), Some("BC:24:11:00:00:01"));
}

#[test]
fn oddities_are_left_out() {
    let line = "-drive -device -machine pflash0=n -blockdev node-name=n,driver=raw,file=n -smp x";
    let description = describe(line);
    assert_eq!(description.firmware, Firmware::Bios { file: None });
    assert_eq!(description.cpu.count, 1);
    assert!(describe("-net none").networks.is_empty());
    assert!(describe("-nic none").networks.is_empty());
    assert_eq!(describe("-nic user").networks.len(), 1);
    assert_eq!(describe("-net nic,model=virtio -net user").networks[0].device, "virtio-net-pci");
    assert_eq!(describe("-smp sockets=2,cores=3").cpu.count, 6);
    assert_eq!(describe("-bios /x/OVMF.fd").firmware, {
        let file = ("bios.bin".to_owned(), "/x/OVMF.fd".to_owned(), "raw".to_owned());
        Firmware::Bios { file: Some(FirmwareFile { name: file.0, path: file.1, format: file.2 }) }
    });
}

proptest! {
    #[test]
    fn any_line_is_read(words in proptest::collection::vec(
        prop_oneof![
            "[-=,{}\":a-z0-9]{0,20}",
            proptest::sample::select(vec![
                "-drive", "-device", "-blockdev", "-machine", "-smp", "-m", "-nic", "-net", "-hda",
                "if=virtio,index=4294967295", "virtio-blk-pci,drive=x", "node-name=x,file=x",
                "sockets=4294967295,cores=4294967295", "pflash0=x", "if=pflash,unit=4294967295",
            ]).prop_map(str::to_owned),
        ],
        0..30,
    )) {
        let description = Description::from_arguments(&words);
        prop_assert_eq!(&description.arguments, &words);
        prop_assert_eq!(Description::from_json(&description.to_json()).unwrap(), description);
    }
}
