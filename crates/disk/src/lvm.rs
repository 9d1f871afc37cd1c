//! Logical volumes of LVM2: linear and striped ones, over any of the machine's disks.
//!
//! Nothing is activated, and no name clashes: groups are distinguished by their UUID.

mod physical;
mod text;

use std::collections::{BTreeMap, BTreeSet};

use crate::finding::Finding;
use crate::read::ReadAt;
use crate::recognize::has_owner_beside_lvm;
use crate::volume::{Place, Run, Volume, VolumeKind, VolumeReader};

use text::{Section, Value};

const SECTOR_BYTES: u64 = 512;
/// Runs of all volumes of a group: what a text of 16 MiB can name is far more than what exists.
const RUNS_MAX: usize = 1 << 17;

/// A name that LVM gives has at most this many bytes.
const NAME_BYTES_MAX: usize = 127;

/// Where a physical volume is.
#[derive(Clone, Copy)]
struct Device {
    place: Place,
    bytes: u64,
    /// Whether it need not be in use: there is another with the same UUID, its partition may be one that no
    /// longer counts or shares bytes with another, or something else owns it too. Then the text of its
    /// group can be an old one as well.
    is_doubtful: bool,
}

/// A group's newest description.
struct Group {
    name: String,
    sequence: u64,
    description: Section,
}

/// The logical volumes whose physical volumes are among these partitions, which are shared then. A
/// partition that was shared before makes those of its group shared.
pub(crate) fn volumes(
    disks: &[&dyn ReadAt],
    partitions: &mut [Volume],
    findings: &mut Vec<Finding>,
) -> Vec<Volume> {
    let mut devices: BTreeMap<String, Device> = BTreeMap::new();
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    for partition in partitions {
        let Some((place, bytes)) = partition.place(0) else { continue };
        let found = physical::find(&VolumeReader::new(partition, disks));
        let Ok(Some(found)) = found else { continue };
        let is_doubtful =
            partition.is_shared || has_owner_beside_lvm(&VolumeReader::new(partition, disks));
        partition.is_shared = true;
        if let Some(first) = devices.get_mut(&found.id) {
            first.is_doubtful = true;
            findings.push(Finding::LvmCopy { id: found.id });
            continue;
        }
        devices.insert(found.id, Device { place, bytes, is_doubtful });
        let mut is_damaged = found.is_damaged;
        for text in found.texts {
            is_damaged |= add_group(&text, &mut groups).is_none();
        }
        if is_damaged {
            findings.push(Finding::LvmDamaged { disk: place.disk, offset: place.offset });
        }
    }
    let mut volumes = Vec::new();
    let mut names = Names::default();
    let clashing = clashing(&groups);
    for name in &clashing {
        findings.push(Finding::LvmNameClash { group: name.clone() });
    }
    for (id, group) in &groups {
        let mut shown = doubled(&group.name);
        if clashing.contains(&group.name) {
            let short: String = id.chars().filter(|c| c.is_ascii_alphanumeric()).take(6).collect();
            shown = format!("{shown}.{short}");
        }
        group.volumes(&shown, &devices, &mut names, findings, &mut volumes);
    }
    volumes
}

/// Names of volumes, which become names of folders: each of them once.
#[derive(Default)]
struct Names {
    /// Names that are taken, and the number by which the next volume of that name is tried.
    next: BTreeMap<String, u64>,
}

impl Names {
    /// A name like this one that no other volume has.
    fn take(&mut self, name: String) -> String {
        let mut free = name.clone();
        while let Some(known) = self.next.get(&free) {
            let number = *self.next.get(&name).unwrap_or(known);
            free = format!("{name}.{number}");
            self.next.insert(name.clone(), number + 1);
        }
        self.next.insert(free.clone(), 2);
        free
    }
}

/// True if LVM gives a group or a volume such a name. Its text can have any.
fn is_name(name: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "+_.-".contains(c);
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.chars().all(is_allowed)
        && !name.starts_with('-')
        && !matches!(name, "." | "..")
}

/// A name as the device mapper writes it. Of one that LVM does not give, what can be in a name of a
/// file.
fn doubled(name: &str) -> String {
    let kept = name.chars().take(NAME_BYTES_MAX);
    let kept = kept.map(|c| if c.is_ascii_alphanumeric() || "+_.-".contains(c) { c } else { '_' });
    kept.collect::<String>().replace('-', "--")
}

/// Keeps a text if it is the newest of its group; `None` if it is invalid.
fn add_group(text: &str, groups: &mut BTreeMap<String, Group>) -> Option<()> {
    let parsed = Section::parse(text)?;
    // Version 1 is the only one that ever was.
    if parsed.number("version").is_some_and(|version| version != 1) {
        return None;
    }
    let (name, description) = parsed.sections().next()?;
    let (id, sequence) = (description.text("id")?, description.number("seqno")?);
    if groups.get(id).is_none_or(|known| known.sequence < sequence) {
        let group = Group { name: name.into(), sequence, description: description.clone() };
        groups.insert(id.into(), group);
    }
    Some(())
}

/// Names that several groups have.
fn clashing(groups: &BTreeMap<String, Group>) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    groups.values().filter(|group| !seen.insert(&group.name)).map(|g| g.name.clone()).collect()
}

/// Why a logical volume cannot be read.
enum Unmapped {
    Incomplete,
    Unsupported(String),
}

impl Group {
    fn volumes(
        &self,
        shown: &str,
        devices: &BTreeMap<String, Device>,
        names: &mut Names,
        findings: &mut Vec<Finding>,
        volumes: &mut Vec<Volume>,
    ) {
        let physical = self.physical(devices);
        let logical = self.description.section("logical_volumes").into_iter();
        // The text of the group may be that device's, and a map of what is free an older one.
        let is_doubtful = physical.values().any(|device| device.is_doubtful);
        let mut runs_left = RUNS_MAX;
        let layers = self.layers();
        for (volume, description) in logical.flat_map(Section::sections) {
            let status = description.list("status").unwrap_or_default();
            if !status.contains(&Value::Text("VISIBLE".into())) {
                continue;
            }
            let name = names.take(format!("{shown}-{}", doubled(volume)));
            if !is_name(volume) || !is_name(&self.name) {
                findings.push(Finding::LvmInvalidName { name: name.clone() });
            }
            match self.runs(description, &physical, &mut runs_left) {
                Ok(runs) => volumes.push(Volume {
                    name,
                    kind: VolumeKind::Lvm {
                        group: self.name.clone(),
                        volume: volume.into(),
                        id: description.text("id").unwrap_or_default().into(),
                    },
                    disk: None,
                    bytes: runs.last().map_or(0, |run| run.start + run.bytes),
                    runs,
                    is_shared: is_doubtful || layers.contains(volume),
                }),
                Err(Unmapped::Incomplete) => findings.push(Finding::LvmIncomplete { name }),
                Err(Unmapped::Unsupported(segment)) => {
                    findings.push(Finding::LvmUnsupported { name, segment });
                }
            }
        }
    }

    /// The names in all segments that are not linear or striped: a snapshot needs what its origin
    /// has freed since, and volumes of other kinds have others below them.
    fn layers(&self) -> BTreeSet<&str> {
        let logical = self.description.section("logical_volumes").into_iter();
        let segments =
            logical.flat_map(Section::sections).flat_map(|(_, volume)| volume.sections());
        let others = segments
            .filter(|(_, segment)| !matches!(segment.text("type"), Some("striped" | "linear")));
        others.flat_map(|(_, segment)| segment.texts()).collect()
    }

    /// The group's own names of physical volumes, with where their extents begin.
    fn physical(&self, devices: &BTreeMap<String, Device>) -> BTreeMap<&str, Device> {
        let listed = self.description.section("physical_volumes").into_iter();
        let found = listed.flat_map(Section::sections).filter_map(|(name, description)| {
            let device = devices.get(&description.text("id")?.replace('-', ""))?;
            let start = description.number("pe_start")?.checked_mul(SECTOR_BYTES)?;
            let place =
                Place { disk: device.place.disk, offset: device.place.offset.checked_add(start)? };
            Some((name, Device { place, bytes: device.bytes.checked_sub(start)?, ..*device }))
        });
        found.collect()
    }

    fn runs(
        &self,
        volume: &Section,
        physical: &BTreeMap<&str, Device>,
        runs_left: &mut usize,
    ) -> Result<Vec<Run>, Unmapped> {
        let mut segments: Vec<&Section> = volume
            .sections()
            .filter(|(name, _)| name.starts_with("segment"))
            .map(|(_, segment)| segment)
            .collect();
        segments.sort_by_key(|segment| segment.number("start_extent"));
        let mut runs: Vec<Run> = Vec::new();
        for segment in segments {
            let kind = segment.text("type").unwrap_or_default();
            if kind != "striped" && kind != "linear" {
                return Err(Unmapped::Unsupported(kind.into()));
            }
            let run = self.run(segment, physical).ok_or(Unmapped::Incomplete)?;
            let end = runs.last().map_or(0, |run| run.start + run.bytes);
            *runs_left = runs_left.checked_sub(1).ok_or(Unmapped::Incomplete)?;
            if run.start != end {
                return Err(Unmapped::Incomplete);
            }
            runs.push(run);
        }
        Ok(runs)
    }

    /// The run of a segment; `None` if it is invalid or a physical volume lacks it.
    fn run(&self, segment: &Section, physical: &BTreeMap<&str, Device>) -> Option<Run> {
        let extent_bytes = self.description.number("extent_size")?.checked_mul(SECTOR_BYTES)?;
        let start = segment.number("start_extent")?.checked_mul(extent_bytes)?;
        let bytes = segment.number("extent_count")?.checked_mul(extent_bytes)?;
        let stripes = segment.list("stripes")?.as_chunks::<2>().0;
        let count = stripes.len() as u64;
        if count == 0
            || bytes == 0
            || !bytes.is_multiple_of(count)
            || start.checked_add(bytes).is_none()
        {
            return None;
        }
        let stripe_bytes = match segment.number("stripe_size") {
            Some(sectors) if count > 1 => sectors.checked_mul(SECTOR_BYTES)?,
            None if count > 1 => return None,
            _ => u64::MAX,
        };
        let is_whole = count == 1 || (bytes / count).checked_rem(stripe_bytes) == Some(0);
        if !is_whole {
            return None;
        }
        let places = stripes.iter().map(|stripe| {
            let [Value::Text(name), Value::Number(extent)] = stripe else { return None };
            let device = physical.get(name.as_str())?;
            let inside = u64::try_from(*extent).ok()?.checked_mul(extent_bytes)?;
            let is_there = inside.checked_add(bytes / count)? <= device.bytes;
            let offset = device.place.offset.checked_add(inside)?;
            is_there.then_some(Place { disk: device.place.disk, offset })
        });
        Some(Run { start, bytes, stripes: places.collect::<Option<_>>()?, stripe_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The volumes of a group on a device of ten extents of 4 KiB, with one segment each.
    fn found(segments: &[&str]) -> (Vec<Volume>, Vec<Finding>) {
        let volume = |(index, segment): (usize, &&str)| {
            format!(
                "v{index} {{ status = [\"VISIBLE\"] segment1 {{ start_extent = 0 {segment} }} }}"
            )
        };
        let volumes: String = segments.iter().enumerate().map(volume).collect();
        let text = format!(
            "vg {{ id = \"group\" seqno = 3 extent_size = 8 physical_volumes {{ pv0 {{ \
             id = \"a-b\" pe_start = 8 }} }} logical_volumes {{ {volumes} }} }}"
        );
        let mut groups = BTreeMap::new();
        add_group(&text, &mut groups).unwrap();
        let place = Place { disk: 2, offset: 1 << 20 };
        let device = Device { place, bytes: 11 << 12, is_doubtful: false };
        let devices = BTreeMap::from([("ab".to_owned(), device)]);
        let (mut volumes, mut findings) = (Vec::new(), Vec::new());
        let mut names = Names::default();
        groups["group"].volumes("vg", &devices, &mut names, &mut findings, &mut volumes);
        (volumes, findings)
    }

    #[test]
    fn segments_that_are_not_on_the_device_are_not_mapped() {
        let striped = |rest: &str| format!("type = \"striped\" extent_count = 4 {rest}");
        let (volumes, findings) = found(&[&striped("stripes = [\"pv0\", 6]")]);
        assert_eq!(findings, []);
        let place = Place { disk: 2, offset: (1 << 20) + (7 << 12) };
        assert_eq!(volumes[0].place(0), Some((place, 4 << 12)));
        for rest in [
            "stripes = [\"pv0\", 7]",
            "stripes = [\"pv0\", -1]",
            "stripes = [\"pv0\", 9223372036854775807]",
            "stripes = [\"pv1\", 0]",
            "stripes = []",
            "stripes = [\"pv0\", 0, \"pv0\", 2]",
            "stripes = [\"pv0\", 0, \"pv0\", 2] stripe_size = 0",
            "stripes = [\"pv0\", 0, \"pv0\", 2] stripe_size = 3",
            "stripes = [\"pv0\", 0, \"pv0\", 2, \"pv0\", 4] stripe_size = 1",
        ] {
            let (volumes, findings) = found(&[&striped(rest)]);
            assert!(volumes.is_empty(), "{rest}");
            assert_eq!(findings, [Finding::LvmIncomplete { name: "vg-v0".into() }], "{rest}");
        }
    }

    /// What its origin frees, a snapshot still needs.
    #[test]
    fn kept_1_7_a_volume_below_another_is_shared() {
        let linear = "type = \"striped\" extent_count = 4 stripes = [\"pv0\", 0]";
        let snapshot = "type = \"snapshot\" extent_count = 4 origin = \"v0\" cow_store = \"c\"";
        let mirror = "type = \"mirror\" extent_count = 4 mirrors = [\"v0\", 0, \"c\", 0]";
        assert!(!found(&[linear]).0[0].is_shared);
        assert!(found(&[linear, snapshot]).0[0].is_shared);
        assert!(found(&[linear, mirror]).0[0].is_shared);
    }

    #[test]
    fn other_kinds_of_volumes_are_named() {
        let (volumes, findings) = found(&["type = \"raid1\" extent_count = 4"]);
        assert!(volumes.is_empty());
        let finding = Finding::LvmUnsupported { name: "vg-v0".into(), segment: "raid1".into() };
        assert_eq!(findings, [finding]);
    }
}
