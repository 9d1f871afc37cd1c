//! A report of results that were made up.

use super::super::results::tests::sample;
use super::super::results::{FLOOR, Profile};
use super::*;

fn info(tool: &str, level: &str, is_default: bool, is_equal: bool) -> ContenderInfo {
    let id = if is_default { tool.to_owned() } else { format!("{tool}-equal") };
    ContenderInfo {
        id,
        tool: tool.to_owned(),
        version: format!("{tool} 1.0"),
        level: level.to_owned(),
        is_default,
        is_equal,
        note: String::new(),
        commands: vec![format!("{tool} backup SOURCE")],
    }
}

fn sources() -> SetResults {
    let mut set = SetResults {
        name: "sources".to_owned(),
        about: "three releases".to_owned(),
        files: vec![78_600, 78_700],
        bytes: vec![1_300_000_000, 1_310_000_000],
        rounds: 2,
        revision: "abc".to_owned(),
        contenders: vec![
            info("strongroom", "zstd 3", true, true),
            info("restic", "auto", true, true),
            info("borg", "lz4", true, false),
            info("borg", "zstd 3", false, true),
        ],
        absent: vec!["kopia".to_owned()],
        ..SetResults::default()
    };
    set.profiles.push(Profile {
        contender: OURS.to_owned(),
        act: "next-2".to_owned(),
        line: "bound by: store".to_owned(),
    });
    for round in 1..=2 {
        for (who, seconds, bytes) in [
            ("strongroom", 4.0, 200_000_000),
            ("restic", 10.0, 277_000_000),
            ("borg", 20.0, 428_000_000),
            ("borg-equal", 30.0, 300_000_000),
        ] {
            set.samples.push(sample(round, who, "first", seconds, Some(bytes)));
            set.samples.push(sample(round, who, "unchanged", seconds / 10.0, Some(2_000)));
            set.samples.push(sample(round, who, "next-2", seconds / 2.0, Some(bytes / 100)));
            set.samples.push(sample(round, who, "restore-2", seconds, None));
        }
        set.samples.push(sample(round, FLOOR, "find", 0.2, None));
        set.samples.push(sample(round, FLOOR, "cp", 5.0, None));
        set.samples.push(sample(round, FLOOR, "cp-sync", 8.0, None));
        set.samples.push(sample(round, FLOOR, "tar-1", 8.0, Some(233_000_000)));
    }
    set
}

fn report() -> Report {
    let kernels = [("random anywhere, memory", 6.0), ("encode 256+8", 1.5), ("read, RAM", 10.0)];
    let kernel = |(name, speed): (&str, f64)| Kernel { name: name.to_owned(), speed };
    Report {
        sets: vec![sources()],
        kernels: kernels.map(kernel).to_vec(),
        notes: parse_notes("# Notes\n\n## 5 kernels\n\nThe table look-up.\n\n## 2\n\nThe walk.\n"),
        machine: Machine::default(),
        scale: Scale::Full,
    }
}

#[test]
fn targets_are_judged() {
    let report = report();
    let verdicts = verdicts(&report.sets, &report.kernels);
    let found: Vec<(u32, &str, Option<bool>)> =
        verdicts.iter().map(|verdict| (verdict.number, &*verdict.what, verdict.is_met)).collect();
    let expected = [
        (1, "first backup, wall", Some(true)),
        (1, "first backup, CPU", Some(true)),
        (1, "stored", Some(true)),
        (2, "added by version 2", Some(false)),
        (2, "unchanged, wall", Some(false)),
        (2, "unchanged, CPU", Some(false)),
        (3, "restore", Some(true)),
        (4, "peak memory, all acts", Some(true)),
        (5, "chunking, noise in memory", Some(true)),
        (5, "signatures, pages of 64 KiB", None),
        (5, "parity, default rate", Some(false)),
    ];
    assert_eq!(found, expected);
    assert_eq!(verdicts[0].measured, "4.00 s; restic (auto) 10.0 s: 0.40×");
    assert_eq!(verdicts[2].measured, "200 MB; restic (auto) 277 MB: 0.72×");
    assert_eq!(
        verdicts[6].measured,
        "4.00 s against 5.00 s: 0.80×; `cp -a` with sync 8.00 s: 0.50×"
    );
}

#[test]
fn the_tables_are_laid_out() {
    let text = report().text("benchmarks");
    for line in [
        "|  | first | unchanged | 2nd | restore | peak MiB | MB stored | + unchanged | + 2nd |",
        "| strongroom zstd 3 | 4.00 (6.00) | 0.40 (0.60) | 2.00 (3.00) | 4.00 (6.00) | 4 | 200 | \
         0.0010 | 1.00 |",
        "| ours ÷ best peer | 0.40× (0.40×) | 0.40× (0.40×) | 0.40× (0.40×) | 0.40× (0.40×) | \
         0.40× | 0.72× | 1.00× | 0.72× |",
        "| borg zstd 3 | 30.0 (45.0) | 3.00 (4.50) | 15.0 (22.5) | 30.0 (45.0) | 30 | 300 | 0.0010 \
         | 1.50 |",
        "Floors: `find -printf` 0.20 (0.30); `tar | zstd -1` 8.00 (12.0), 233 MB; `cp -a` 5.00 \
         (7.50); `cp -a` and `sync -f` 8.00 (12.0).",
        "Versions: 78,600 files, 1300 MB; 78,700 files, 1310 MB. Measured at revision abc, \
         in 2 rounds.",
        "Left out, as not installed: kopia.",
        "![sources](benchmarks/sources.svg)",
        "### What binds: 2 sources",
        "The walk.",
        "- next-2: bound by: store",
        "The table look-up.",
        "restic backup SOURCE",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert!(!text.contains("Not looked into yet"), "{text}");
    assert!(!text.contains("\n\n\n"), "{text}");
}

#[test]
fn what_was_not_restored_is_told_loudly() {
    let mut report = report();
    report.sets[0].troubles.push(Trouble {
        contender: "restic".to_owned(),
        act: "restore-2".to_owned(),
        what: "3 differences".to_owned(),
        is_unequal: true,
    });
    assert_eq!(report.unequal(), ["restic (sources, restore-2: 3 differences)"]);
    assert!(report.text("plots").contains("**Not restored as stored: restic"));
}

#[test]
fn a_plot_stands_beside_the_document() {
    let folder = std::env::temp_dir().join(format!("bench-report-{}", std::process::id()));
    let out = folder.join("benchmarks.md");
    report().write(&out).unwrap();
    let svg = std::fs::read_to_string(folder.join("benchmarks/sources.svg")).unwrap();
    for part in [
        "first backup, s<",
        "added by the 2nd version, MB",
        "tar | zstd -1",
        "cp -a",
        "peak memory",
    ] {
        assert!(svg.contains(part), "{part}");
    }
    assert!(!svg.contains("verify"), "none was verified");
    remove(&folder).unwrap();
}

#[test]
fn many_next_versions_share_a_column() {
    let mut set = SetResults { name: "thirty".to_owned(), ..SetResults::default() };
    set.contenders.push(info("strongroom", "zstd 3", true, true));
    set.samples.push(sample(1, "strongroom", "first", 9.0, Some(100)));
    for version in 2..=30 {
        let act = format!("next-{version}");
        set.samples.push(sample(1, "strongroom", &act, f64::from(version), Some(2_000_000)));
    }
    for (act, wall) in [("restore-1", 4.0), ("restore-30", 6.0)] {
        set.samples.push(sample(1, "strongroom", act, wall, None));
    }
    let text = acts::main_table(&set, |_| true);
    assert!(text.contains("| first | next | restore 1st | restore 30th |"), "{text}");
    assert!(text.contains("| 9.00 (13.5) | 16.0 (24.0) | 4.00 (6.00) |"), "{text}");
    assert!(text.contains("| 29.0 |"), "{text}");
    let verdicts = verdicts(&[set], &[]);
    let newest = verdicts.iter().find(|verdict| verdict.what == "restore of the newest").unwrap();
    assert_eq!((newest.is_met, &*newest.measured), (Some(false), "6.00 s against 4.00 s: 1.50×"));
}
