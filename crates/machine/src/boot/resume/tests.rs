//! Plans of machines that are resumed.

use super::*;
use crate::MemoryPart;
use crate::boot::FirmwareFolder;

fn description(arguments: &str) -> Description {
    let arguments: Vec<String> = arguments.split(' ').map(str::to_owned).collect();
    let mut description = Description::from_arguments(&arguments);
    description.machine = Some("pc-i440fx-7.2".to_owned());
    description.memory = vec![MemoryPart { id: "ram0".to_owned(), bytes: 16 << 20 }];
    description
}

fn plan_of(description: &Description) -> Result<BootPlan, ResumeError> {
    let parent = tempfile::tempdir().unwrap();
    let mut firmware = FirmwareFolder::create(parent.path().join("firmware")).unwrap();
    for file in description.files() {
        firmware.put(&FirmwareFile { format: "raw".to_owned(), ..file.clone() }, vec![]).unwrap();
    }
    let folder = Path::new("/run/boot");
    let options = BootOptions {
        folder: folder.to_owned(),
        firmware,
        socket: folder.join("nbd"),
        memory_bytes: None,
        cpus: None,
        display: "none".to_owned(),
        network: crate::boot::BootNetwork::Isolated { forwards: vec![(0, 22)], shared: None },
        uses_kvm: false,
        has_agent: false,
    };
    let machines = vec!["pc-i440fx-7.2".to_owned()];
    let emulator = Qemu { program: "qemu".into(), machines, devices: Vec::new() };
    let disks = ["vda", "sda"]
        .map(|name| BootDisk { name: name.to_owned(), export: format!("vm1/{name}@0123") });
    plan_resume(description, &disks, &emulator, &options, &folder.join("memory"))
}

fn arguments(typed: &str) -> String {
    plan_of(&description(typed)).unwrap().arguments.join(" ")
}

#[test]
fn the_devices_are_what_they_were() {
    let all = arguments(
        "-name vm1 -machine q35,accel=tcg,memory-backend=ram0 -m 16 -nodefaults -daemonize \
         -object memory-backend-file,id=ram0,size=16M,mem-path=/dev/shm/x,share=on \
         -drive if=none,id=d0,file=/vm/a.qcow2,format=qcow2,cache=none -device \
         virtio-blk-pci,drive=d0,id=vda,addr=0x5 -blockdev driver=file,node-name=f,filename=/vm/b \
         -blockdev driver=qcow2,node-name=n,file=f -device scsi-hd,drive=n,id=sda \
         -drive if=none,id=cd,file=/vm/x.iso,media=cdrom -netdev tap,id=n0,ifname=t,vhost=on \
         -device virtio-net-pci,netdev=n0,mac=52:54:00:00:00:01 -netdev user,id=n1 \
         -chardev socket,id=c0,path=/run/x -device isa-serial,chardev=c0 -qmp unix:/q,server=on",
    );
    for part in [
        "-machine pc-i440fx-7.2,memory-backend=ram0 -m 16 -nodefaults",
        "-object memory-backend-file,id=ram0,size=16777216,mem-path=/run/boot/memory/ram0,share=on",
        "file.server.path=/run/boot/nbd,file.export=vm1/vda@0123",
        "-device virtio-blk-pci,drive=d0,id=vda,addr=0x5",
        "\"export\":\"vm1/sda@0123\"",
        "\"node-name\":\"n\"",
        "-device scsi-hd,drive=n,id=sda -drive if=none,id=cd,media=cdrom ",
        "-netdev tap,script=no,downscript=no,vhost=off,id=n0",
        "-netdev user,restrict=on,hostfwd=tcp:127.0.0.1:0-:22,id=n1",
        "-chardev stdio,signal=off,id=c0 -device isa-serial,chardev=c0",
        "-accel tcg",
        "-incoming defer",
    ] {
        assert!(all.contains(part), "no {part} in {all}");
    }
    for part in ["/vm/", "/dev/shm", "/run/x", "-daemonize", " -serial ", "unix:"] {
        assert!(!all.contains(part), "{part} in {all}");
    }
}

#[test]
fn the_first_serial_port_is_heard() {
    for (typed, has) in [
        (
            "-m 16",
            "-chardev stdio,signal=off,id=strongroom-serial -serial chardev:strongroom-serial",
        ),
        ("-serial file:/x -serial pty", "chardev:strongroom-serial -serial null"),
        ("-serial none", "-serial none"),
        ("-chardev pty,id=a -serial chardev:a", "stdio,signal=off,id=a -serial chardev:a"),
    ] {
        let all = arguments(typed);
        assert!(all.contains(has), "{typed}: {all}");
        assert_eq!(all.matches("stdio").count(), usize::from(typed != "-serial none"), "{all}");
    }
    assert!(!arguments("-nodefaults").contains("-serial"));
}

#[test]
fn what_is_of_the_host_is_refused() {
    for typed in [
        "-device vfio-pci,host=01:00.0",
        "-device usb-host,hostbus=1",
        "-device virtio-net-pci,romfile=secret",
        "-global driver=e1000,property=romfile,value=secret",
        "-global e1000.romfile=secret",
        "-kernel vmlinuz",
        "-initrd secret",
        "-fw_cfg name=opt/x,file=secret",
        "-smbios file=secret",
        "-boot order=c,splash=secret",
        "-icount shift=1,rr=record,rrfile=x",
        "-machine pc,firmware=secret",
        "-machine pc,dtb=secret",
        "-cpu qemu64,x=/dev/null",
        "-fsdev local,id=a,path=/",
        "-object secret,id=a,file=secret",
        "-object memory-backend-file,id=other,size=16M,mem-path=x,share=on",
        "-readconfig x",
        "-drive file=/vm/other,if=virtio",
    ] {
        let refused = plan_of(&description(typed));
        assert!(refused.is_err(), "{typed}: {:?}", refused.unwrap().arguments);
    }
}

/// Of an image, QEMU would open what its header names.
#[test]
fn firmware_is_the_stored_one_and_never_an_image() {
    for typed in [
        "-drive if=pflash,file=/vm/code,format=qcow2",
        "-blockdev driver=file,node-name=f,filename=/vm/code -blockdev \
         driver=qcow2,node-name=n,file=f -machine pc,pflash0=n",
        "-bios /vm/code",
    ] {
        let all = arguments(typed);
        assert!(all.contains("/firmware/") && !all.contains("/vm/code"), "{all}");
        assert!(!all.contains("qcow2"), "{all}");
        let mut unknown = description(typed);
        unknown.firmware = crate::Firmware::default();
        assert!(matches!(plan_of(&unknown), Err(ResumeError::Firmware { .. })), "{typed}");
    }
}

#[test]
fn what_qemu_reads_otherwise_is_refused() {
    let many = format!("-device virtio-net-pci{},romfile=secret", ",addr=5".repeat(5000));
    let single =
        "-device {'id':'a,driver=virtio-net-pci,b','driver':'virtio-net-pci','romfile':'x'}";
    for typed in [&many, single] {
        assert!(matches!(plan_of(&description(typed)), Err(ResumeError::Option { .. })));
    }
    assert!(plan_of(&description("-device virtio-net-pci,addr=5")).is_ok());
}

#[test]
fn what_is_missing_is_said() {
    let known = description("-m 16");
    assert!(plan_of(&known).is_ok());
    let none = Description { memory: Vec::new(), ..known.clone() };
    assert!(matches!(plan_of(&none), Err(ResumeError::NoMemory)));
    let none = Description { arguments: Vec::new(), ..known.clone() };
    assert!(matches!(plan_of(&none), Err(ResumeError::NoArguments)));
    let other = Description { machine: Some("pc-q35-99.0".to_owned()), ..known.clone() };
    assert!(matches!(plan_of(&other), Err(ResumeError::Machine { .. })));
    let mut kvm = known;
    kvm.emulator.is_kvm = true;
    assert!(matches!(plan_of(&kvm), Err(ResumeError::Kvm)));
    for id in ["", "../x", ".x"] {
        assert_eq!(memory_file(Path::new("/f"), id), None);
    }
}
