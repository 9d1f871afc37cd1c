//! What must be shown, and whether it is.

use super::super::kernels::Kernel;
use super::super::results::{FLOOR, OURS, Sample, SetResults};
use super::acts::{added_of, cpu_of, stored_of, wall_of};
use crate::table::{NONE, megabytes, seconds, times};

const MEMORY_MIB: u64 = 150;
/// Sets that are trees, which an unchanged backup only walks.
const TREES: [&str; 3] = ["sources", "usr", "small"];

/// One target on one data set.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// Its number in the list of what must be shown.
    pub number: u32,
    /// The data set.
    pub set: String,
    /// What is compared.
    pub what: String,
    /// What it should be.
    pub wanted: String,
    /// What it is.
    pub measured: String,
    /// Whether that is so; unknown if something was not measured.
    pub is_met: Option<bool>,
}

/// All targets, by number.
pub fn verdicts(sets: &[SetResults], kernels: &[Kernel]) -> Vec<Verdict> {
    let sets: Vec<&SetResults> = sets.iter().filter(|set| !set.samples.is_empty()).collect();
    let sets = || sets.iter().copied();
    let mut all: Vec<Verdict> = Vec::new();
    all.extend(sets().filter(|set| set.name != "thirty").flat_map(first));
    all.extend(sets().flat_map(next));
    all.extend(sets().filter(|set| TREES.contains(&&*set.name)).flat_map(unchanged));
    all.extend(sets().flat_map(restore));
    all.extend(sets().map(memory));
    all.extend(kernel_verdicts(kernels));
    all
}

/// Who of the others is best at something, and how good.
fn best(set: &SetResults, of: impl Fn(&str) -> Option<f64>) -> Option<(String, f64)> {
    let peers = set.contenders.iter().filter(|info| info.tool != OURS);
    let all =
        peers.filter_map(|info| Some((format!("{} ({})", info.tool, info.level), of(&info.id)?)));
    all.min_by(|(_, one), (_, other)| one.total_cmp(other))
}

/// Ours against a share of the best peer's.
fn against_best(
    set: &SetResults,
    head: (u32, &str, &str),
    share: f64,
    text: impl Fn(f64) -> String,
    of: impl Fn(&str) -> Option<f64>,
) -> Verdict {
    let (number, what, wanted) = head;
    let ours = of(OURS);
    let best = best(set, &of);
    let measured = match (ours, &best) {
        (Some(ours), Some((who, best))) => {
            format!("{}; {who} {}: {}", text(ours), text(*best), times(ours / best))
        }
        (Some(ours), None) => format!("{}; no peer was measured", text(ours)),
        _ => NONE.to_owned(),
    };
    let is_met = ours.zip(best).map(|(ours, (_, best))| ours <= best * share);
    verdict(set, number, what, wanted, measured, is_met)
}

fn verdict(
    set: &SetResults,
    number: u32,
    what: &str,
    wanted: &str,
    measured: String,
    is_met: Option<bool>,
) -> Verdict {
    let (what, wanted) = (what.to_owned(), wanted.to_owned());
    Verdict { number, set: set.name.clone(), what, wanted, measured, is_met }
}

fn first(set: &SetResults) -> Vec<Verdict> {
    let of = |of: fn(&Sample) -> f64| move |id: &str| set.median(id, "first", of);
    let with_unit = |value: f64| format!("{} s", seconds(value));
    let size = |value: f64| format!("{} MB", megabytes(value));
    vec![
        against_best(set, (1, "first backup, wall", "≤ 0.5×"), 0.5, with_unit, of(wall_of)),
        against_best(set, (1, "first backup, CPU", "< 1×"), 1.0, with_unit, of(cpu_of)),
        against_best(set, (1, "stored", "< 1×"), 1.0, size, of(stored_of)),
    ]
}

fn next(set: &SetResults) -> Vec<Verdict> {
    let (share, wanted) = match &*set.name {
        "sources" => (0.2, "≤ 0.2×"),
        "image" => (0.75, "≤ 0.75×"),
        _ => return Vec::new(),
    };
    let size = |value: f64| format!("{} MB", megabytes(value));
    let acts = set.acts("next-");
    let each = acts.iter().map(|act| {
        let what = format!("added by version {}", act.trim_start_matches("next-"));
        against_best(set, (2, &what, wanted), share, size, |id| added_of(set, id, act))
    });
    each.collect()
}

/// Ours against a multiple of a floor's.
fn against_floor(
    set: &SetResults,
    head: (u32, &str, &str),
    most: f64,
    act: &str,
    floor: &str,
    of: fn(&Sample) -> f64,
) -> Verdict {
    let (number, what, wanted) = head;
    let both = set.median(OURS, act, of).zip(set.median(FLOOR, floor, of));
    let text = |(ours, floor): (f64, f64)| {
        format!("{} s against {} s: {}", seconds(ours), seconds(floor), times(ours / floor))
    };
    let is_met = both.map(|(ours, floor)| ours <= floor * most);
    verdict(set, number, what, wanted, both.map_or(NONE.to_owned(), text), is_met)
}

fn unchanged(set: &SetResults) -> Vec<Verdict> {
    let wanted = "≤ 1.5× `find -printf`";
    vec![
        against_floor(set, (2, "unchanged, wall", wanted), 1.5, "unchanged", "find", wall_of),
        against_floor(set, (2, "unchanged, CPU", wanted), 1.5, "unchanged", "find", cpu_of),
    ]
}

fn restore(set: &SetResults) -> Vec<Verdict> {
    let acts = set.acts("restore-");
    let Some(newest) = acts.last() else { return Vec::new() };
    let wanted = "≤ 1.3× `cp -a`";
    let mut all = vec![against_floor(set, (3, "restore", wanted), 1.3, newest, "cp", wall_of)];
    // A restore is on the disk when it is done; so this is the other half of the comparison.
    let synced = set.median(OURS, newest, wall_of).zip(set.median(FLOOR, "cp-sync", wall_of));
    if let Some((ours, floor)) = synced {
        all[0].measured +=
            &format!("; `cp -a` with sync {} s: {}", seconds(floor), times(ours / floor));
    }
    if let [oldest, .., newest] = &acts[..] {
        let of = |act: &String| set.median(OURS, act, wall_of);
        let both = of(newest).zip(of(oldest));
        let text = |(newest, oldest): (f64, f64)| {
            format!(
                "{} s against {} s: {}",
                seconds(newest),
                seconds(oldest),
                times(newest / oldest)
            )
        };
        let measured = both.map_or(NONE.to_owned(), text);
        let is_met = both.map(|(newest, oldest)| newest <= oldest * 1.3);
        all.push(verdict(set, 3, "restore of the newest", "≤ 1.3× the oldest", measured, is_met));
    }
    all
}

fn memory(set: &SetResults) -> Verdict {
    let peak = set.peak_kib(OURS);
    let text = |kib: u64| format!("{} MiB", kib.div_ceil(1024));
    let is_met = peak.map(|kib| kib <= MEMORY_MIB << 10);
    let wanted = format!("≤ {MEMORY_MIB} MiB");
    verdict(set, 4, "peak memory, all acts", &wanted, peak.map_or(NONE.to_owned(), text), is_met)
}

/// Of 16 MiB arenas in shards of 64 KiB, three in a hundred are parity.
const DEFAULT_CODE: &str = "encode 256+8";

fn kernel_verdicts(kernels: &[Kernel]) -> Vec<Verdict> {
    let speed =
        |name: &str| kernels.iter().find(|kernel| kernel.name == name).map(|kernel| kernel.speed);
    let rate = |what: &str, name: &str, least: f64| Verdict {
        number: 5,
        set: "kernels".to_owned(),
        what: what.to_owned(),
        wanted: format!("≥ {least} GB/s"),
        measured: speed(name).map_or(NONE.to_owned(), |speed| format!("{speed:.2} GB/s")),
        is_met: speed(name).map(|speed| speed >= least),
    };
    let signatures = speed("signature<2>, 64 KiB pages, RAM").zip(speed("read, RAM"));
    let text = |(ours, read): (f64, f64)| {
        format!("{ours:.2} GB/s of {read:.2} GB/s: {}", times(ours / read))
    };
    vec![
        rate("chunking, noise in memory", "random anywhere, memory", 5.0),
        Verdict {
            number: 5,
            set: "kernels".to_owned(),
            what: "signatures, pages of 64 KiB".to_owned(),
            wanted: "≥ 0.75× reading memory".to_owned(),
            measured: signatures.map_or(NONE.to_owned(), text),
            is_met: signatures.map(|(ours, read)| ours >= 0.75 * read),
        },
        rate("parity, default rate", DEFAULT_CODE, 2.0),
    ]
}
