//! What was measured, as a document.

use std::fs;

use super::phase::Phase;
use super::stores::STORES;
use super::{Args, Measured};

const MIB: f64 = (1 << 20) as f64;
/// Which version of a package was compared with.
const LOCK_FILE: &str = include_str!("../../../../Cargo.lock");

/// What was run, where, and how to read the tables.
pub fn head(args: &Args) -> String {
    format!(
        "# Index benchmarks\n\n\
         Made by `{}`; not edited by hand.\n\n\
         {}.\n{}.\n\n\
         The same keys for all: fingerprints of 32 bytes from a seed, locations of 8 bytes. \
         Inserted in the order in which they come, committed every {} keys so that a crash of the \
         process loses none of them; only redb flushes to the medium, which it always does. \
         Each store may hold about 64 MiB in memory; ours holds what it takes. Each phase runs in \
         a process of its own. Wall seconds depend on what else the machine does; CPU seconds are \
         of all threads, in user and kernel mode. A store that took longer than it was given \
         was stopped: its bytes and memory are those until then, and it was asked nothing.\n",
        command(),
        machine(),
        versions(),
        args.flush_keys
    )
}

/// The tables for one number of keys.
pub fn tables(keys: u64, rows: &[(&str, Measured)]) -> String {
    let mut text = format!(
        "\n## {} keys\n\n{}{}",
        grouped(keys),
        line(&["", "insert", "absent", "present", "merge all", "rebuild"]),
        line(&["---"; 6])
    );
    for (store, measured) in rows {
        let each = |phase, prefix: &str| per_key(measured, phase, prefix);
        let all = |phase| seconds(measured, phase);
        text += &line(&[
            &title(store),
            &all(Phase::Insert),
            &each(Phase::Lookup, "absent_"),
            &each(Phase::Lookup, "present_"),
            &all(Phase::Merge),
            &all(Phase::Rebuild),
        ]);
    }
    text += "\nLook-ups: wall microseconds each (CPU), page cache warm. The others: wall seconds \
             (CPU) for all keys.\n\n";
    text += &line(&[
        "",
        "bytes on disk a key",
        "merged",
        "bytes written a key",
        "MiB inserting",
        "looking up",
        "merging",
        "rebuilding",
    ]);
    text += &line(&["---"; 8]);
    for (store, measured) in rows {
        let memory = |phase| memory(measured, phase);
        text += &line(&[
            &title(store),
            &ratio(measured, Phase::Insert, "disk_bytes", keys),
            &ratio(measured, Phase::Merge, "disk_bytes", keys),
            &ratio(measured, Phase::Insert, "written_bytes", keys),
            &memory(Phase::Insert),
            &memory(Phase::Lookup),
            &memory(Phase::Merge),
            &memory(Phase::Rebuild),
        ]);
    }
    text += "\nMemory: the most that was resident, `VmHWM` (of it anonymous, sampled).\n\n";
    text += &line(&["", "absent: KiB read", "µs", "present: KiB read", "µs"]);
    text += &line(&["---"; 5]);
    for (store, measured) in rows {
        let read = |prefix: &str| {
            let bytes = measured.get(Phase::Cold, &format!("{prefix}read_bytes"));
            let count = measured.get(Phase::Cold, &format!("{prefix}count"));
            cell(bytes.zip(count).map(|(bytes, count)| format!("{:.2}", bytes / count / 1024.0)))
        };
        text += &line(&[
            &title(store),
            &read("absent_"),
            &per_key(measured, Phase::Cold, "absent_"),
            &read("present_"),
            &per_key(measured, Phase::Cold, "present_"),
        ]);
    }
    text += "\nLook-ups that begin with an empty page cache: what was read from the medium, and wall \
             microseconds (CPU), each. It fills as they go on.\n";
    text
}

/// A row of a table.
fn line(cells: &[&str]) -> String {
    format!("| {} |\n", cells.join(" | ")).replace("|  |", "| |")
}

fn title(store: &str) -> String {
    let what = STORES.iter().find(|(name, _)| *name == store).map_or("", |(_, what)| what);
    format!("{store} ({what})")
}

fn cell(value: Option<String>) -> String {
    value.unwrap_or_else(|| "–".to_owned())
}

fn seconds(measured: &Measured, phase: Phase) -> String {
    let get = |name| measured.get(phase, name);
    if phase == Phase::Merge && get("merged") == Some(0.0) {
        return "none".to_owned();
    }
    let took = get("seconds").zip(get("cpu_seconds"));
    let Some((seconds, cpu_seconds)) = took else { return cell(None) };
    let took = format!("{seconds:.0} ({cpu_seconds:.0})");
    match get("inserted").zip(get("count")) {
        Some((inserted, count)) if inserted < count => {
            format!("stopped at {} after {took}", grouped(inserted as u64))
        }
        _ => took,
    }
}

fn per_key(measured: &Measured, phase: Phase, prefix: &str) -> String {
    let get = |name| measured.get(phase, &format!("{prefix}{name}"));
    let took = get("seconds").zip(get("cpu_seconds")).zip(get("count"));
    cell(took.map(|((seconds, cpu_seconds), count)| {
        format!("{:.2} ({:.2})", 1e6 * seconds / count, 1e6 * cpu_seconds / count)
    }))
}

fn ratio(measured: &Measured, phase: Phase, name: &str, keys: u64) -> String {
    if phase == Phase::Merge && measured.get(phase, "merged") == Some(0.0) {
        return cell(None);
    }
    let count = measured.get(Phase::Insert, "inserted").unwrap_or(keys as f64);
    cell(measured.get(phase, name).map(|bytes| format!("{:.1}", bytes / count)))
}

fn memory(measured: &Measured, phase: Phase) -> String {
    let get = |name| measured.get(phase, name).map(|bytes| bytes / MIB);
    let peaks = get("resident_bytes").zip(get("anonymous_bytes"));
    cell(peaks.map(|(resident, anonymous)| format!("{resident:.0} ({anonymous:.0})")))
}

/// A number with its thousands apart.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// What was typed, without the folder, which is of this machine.
fn command() -> String {
    let mut words = vec!["cargo run -p strongroom-bench --release --features stores --".to_owned()];
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--dir" => drop(arguments.next()),
            _ if argument.starts_with("--dir=") => {}
            _ => words.push(argument),
        }
    }
    words.join(" ")
}

fn machine() -> String {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let behind = |text: &str, name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned())
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let model = behind(&read("/proc/cpuinfo"), "model name").unwrap_or_default();
    let memory = behind(&read("/proc/meminfo"), "MemTotal").unwrap_or_default();
    let kibibytes = memory.split(' ').next().and_then(|number| number.parse::<f64>().ok());
    let gibibytes = kibibytes.unwrap_or(0.0) / MIB;
    let kernel = read("/proc/sys/kernel/osrelease");
    format!("{cores} cores, {model}, {gibibytes:.0} GiB, Linux {}", kernel.trim())
}

fn versions() -> String {
    let ours = ("strongroom-index", env!("CARGO_PKG_VERSION").to_owned());
    let theirs = ["redb", "fjall", "lsm-tree"].map(|name| (name, version(LOCK_FILE, name)));
    let all = [ours].into_iter().chain(theirs);
    all.map(|(name, version)| format!("{name} {version}")).collect::<Vec<_>>().join(", ")
}

/// The version of a package in a lock file.
fn version(lock_file: &str, package: &str) -> String {
    let name = format!("name = \"{package}\"\nversion = \"");
    let rest = lock_file.split_once(&name).map_or("", |(_, rest)| rest);
    rest.split('"').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_what_was_told() {
        let mut ours = Measured::default();
        let inserted = "count 2000\nseconds 4\ncpu_seconds 3\ninserted 2000\ndisk_bytes 84000\n\
                        written_bytes 168000\nresident_bytes 2097152\nanonymous_bytes 1048576\n";
        ours.add(Phase::Insert, inserted).unwrap();
        let looked_up = "absent_count 100\nabsent_seconds 0.0001\nabsent_cpu_seconds 0.00005\n";
        ours.add(Phase::Lookup, looked_up).unwrap();
        ours.add(Phase::Merge, "merged 0\nseconds 1\ncpu_seconds 1\n").unwrap();
        let mut stopped = Measured::default();
        stopped
            .add(Phase::Insert, "count 2000\nseconds 9\ncpu_seconds 8\ninserted 1500\n")
            .unwrap();
        let text = tables(2000, &[("ours", ours), ("redb", stopped)]);
        for row in [
            "| ours (strongroom-index) | 4 (3) | 1.00 (0.50) | – | none | – |",
            "| ours (strongroom-index) | 42.0 | – | 84.0 | 2 (1) | – | – | – |",
            "| redb (B-tree) | stopped at 1,500 after 9 (8) | – | – | – | – |",
        ] {
            assert!(text.contains(row), "{row} in {text}");
        }
    }

    #[test]
    fn numbers_and_versions() {
        assert_eq!([0, 999, 1000, 12_345_678].map(grouped).join(" "), "0 999 1,000 12,345,678");
        assert!(version(LOCK_FILE, "redb").starts_with("4."));
        assert!(machine().contains("cores"));
    }
}
