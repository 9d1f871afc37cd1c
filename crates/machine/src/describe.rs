//! The description of a machine that runs: its command line, corrected by what QEMU says.

use serde_json::{Value, json};

use crate::description::{
    Description, DiskBus, DiskDescription, NetworkDescription, Tpm, is_network,
};
use crate::drives::Drive;
use crate::error::MachineError;
use crate::live::Machine;
use crate::objects::{property, value};
use crate::process::{command_line, fill_tpm_state};
use crate::qmp::Qmp;

/// Where QEMU keeps devices.
const FOLDERS: [&str; 3] =
    ["/machine/peripheral", "/machine/peripheral-anon", "/machine/unattached"];

impl Machine {
    /// What the machine is made of. The arguments are those of the process at the other end of the
    /// monitor, if it can be seen from here.
    ///
    /// # Errors
    ///
    /// QEMU does not answer.
    pub(crate) fn describe(&self) -> Result<Description, MachineError> {
        let qmp = self.qmp();
        let line = qmp.peer().and_then(|peer| command_line(peer.pid?));
        let (program, arguments) = line.unwrap_or_default();
        let mut description = Description::from_arguments(&arguments);
        if !program.is_empty() {
            description.emulator.program = program;
        }
        fill_emulator(qmp, &mut description)?;
        fill_machine(qmp, &mut description)?;
        fill_disks(self, &mut description)?;
        fill_networks(qmp, &mut description)?;
        fill_tpm_state(&mut description);
        Ok(description)
    }
}

/// The answer to a question that some versions or builds do not know.
fn ask(qmp: &Qmp, command: &str) -> Result<Value, MachineError> {
    match qmp.execute(command, Value::Null) {
        Err(error) if error.is_refused() => Ok(Value::Null),
        answer => Ok(answer?),
    }
}

fn text(value: &Value) -> Option<String> {
    value.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

fn fill_emulator(qmp: &Qmp, description: &mut Description) -> Result<(), MachineError> {
    let emulator = &mut description.emulator;
    let (major, minor, micro) = qmp.version();
    emulator.version = Some(format!("{major}.{minor}.{micro}"));
    emulator.package = Some(qmp.package().to_owned()).filter(|package| !package.is_empty());
    emulator.architecture = text(&ask(qmp, "query-target")?["arch"]);
    if let Some(is_kvm) = ask(qmp, "query-kvm")?["enabled"].as_bool() {
        emulator.is_kvm = is_kvm;
    }
    if emulator.program.is_empty()
        && let Some(architecture) = &emulator.architecture
    {
        emulator.program = format!("qemu-system-{architecture}");
    }
    Ok(())
}

fn fill_machine(qmp: &Qmp, description: &mut Description) -> Result<(), MachineError> {
    if let Some(kind) = property(qmp, "/machine", "type")? {
        description.machine = Some(kind.strip_suffix("-machine").unwrap_or(&kind).to_owned());
    }
    if let Some(name) = text(&ask(qmp, "query-name")?["name"]) {
        description.name = Some(name);
    }
    // All zeros is what QEMU says of a machine without one.
    let uuid = text(&ask(qmp, "query-uuid")?["UUID"]);
    let is_set = |uuid: &String| uuid.bytes().any(|byte| !matches!(byte, b'0' | b'-'));
    if let Some(uuid) = uuid.filter(is_set) {
        description.uuid = Some(uuid);
    }
    if let Some(bytes) = ask(qmp, "query-memory-size-summary")?["base-memory"].as_u64() {
        description.memory_bytes = Some(bytes);
    }
    let processors = ask(qmp, "query-cpus-fast")?;
    if let Some(count) = processors.as_array().map(Vec::len).filter(|&count| count > 0) {
        description.cpu.count = u32::try_from(count).unwrap_or(u32::MAX);
    }
    if description.cpu.model.is_none() {
        let kinds = ask(qmp, "query-hotpluggable-cpus")?;
        let architecture = description.emulator.architecture.as_deref().unwrap_or_default();
        let kind = text(&kinds[0]["type"]);
        let model = kind
            .and_then(|kind| Some(kind.strip_suffix(&format!("-{architecture}-cpu"))?.to_owned()));
        description.cpu.model = model;
    }
    let tpm = &ask(qmp, "query-tpm")?[0];
    if let (None, Some(model)) = (&description.tpm, text(&tpm["model"])) {
        let backend = text(&tpm["options"]["type"]).unwrap_or_default();
        description.tpm = Some(Tpm { device: model, backend, state: Vec::new() });
    }
    Ok(())
}

fn fill_disks(machine: &Machine, description: &mut Description) -> Result<(), MachineError> {
    let mut disks = Vec::new();
    for drive in machine.drives() {
        let known = description.disks.iter().find(|disk| disk.name == drive.name);
        disks.push(disk(machine.qmp(), drive, known)?);
    }
    // Drives that are not read are described, too; disks that were unplugged are not.
    description
        .disks
        .retain(|disk| disk.is_cdrom || disk.is_read_only || disk.bus == DiskBus::Floppy);
    description.disks.retain(|disk| !disks.iter().any(|found| found.name == disk.name));
    disks.append(&mut description.disks);
    description.disks = disks;
    Ok(())
}

fn disk(
    qmp: &Qmp,
    drive: &Drive,
    known: Option<&DiskDescription>,
) -> Result<DiskDescription, MachineError> {
    let serial = property(qmp, &drive.device, "serial")?.filter(|serial| !serial.is_empty());
    let boot_index = value(qmp, &drive.device, "bootindex")?.and_then(|index| index.as_u64());
    let known_controller = known.and_then(|disk| disk.controller.clone());
    Ok(DiskDescription {
        name: drive.name.clone(),
        bus: drive.bus,
        device: drive.driver.clone(),
        controller: drive.controller.clone().or(known_controller),
        serial: serial.or_else(|| known.and_then(|disk| disk.serial.clone())),
        boot_index: boot_index.and_then(|index| u32::try_from(index).ok()),
        is_read_only: false,
        is_cdrom: false,
        bytes: Some(drive.bytes),
        format: Some(drive.format.clone()),
        path: drive.file.clone(),
        properties: known.map(|disk| disk.properties.clone()).unwrap_or_default(),
    })
}

fn fill_networks(qmp: &Qmp, description: &mut Description) -> Result<(), MachineError> {
    let mut found: Vec<NetworkDescription> = Vec::new();
    for folder in FOLDERS {
        let listed = match qmp.execute("qom-list", json!({"path": folder})) {
            Err(error) if error.is_refused() => continue,
            answer => answer?,
        };
        for entry in listed.as_array().into_iter().flatten() {
            let (Some(name), Some(kind)) = (entry["name"].as_str(), entry["type"].as_str()) else {
                continue;
            };
            let driver = kind.strip_prefix("child<").and_then(|kind| kind.strip_suffix('>'));
            let Some(driver) = driver.filter(|driver| is_network(driver)) else { continue };
            let mac = property(qmp, &format!("{folder}/{name}"), "mac")?;
            let networks = &description.networks;
            let same = networks.iter().find(|network| {
                mac.as_ref()
                    .zip(network.mac.as_ref())
                    .is_some_and(|(a, b)| a.eq_ignore_ascii_case(b))
            });
            let backend = same.and_then(|network| network.backend.clone());
            found.push(NetworkDescription { device: driver.to_owned(), mac, backend });
        }
    }
    if found.is_empty() {
        return Ok(());
    }
    // In the order of their addresses, which is that of the command line unless it says others.
    found.sort_by(|a, b| a.mac.cmp(&b.mac));
    description.networks = found;
    Ok(())
}
