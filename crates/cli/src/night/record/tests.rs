//! Records within their bounds, of wrong clocks, and of rubbish.

use super::*;

fn run(at: i64, undelivered: &[&str]) -> RunRecord {
    let step = StepRecord {
        step: "backup".to_owned(),
        outcome: "good".to_owned(),
        exit: Some(0),
        seconds: 1.0,
        ended: None,
        output: "ä".repeat(OUTPUT_BYTES_MAX),
    };
    RunRecord {
        started: Moment(Timestamp(at)),
        ended: Moment(Timestamp(at.saturating_add(1))),
        verdict: "good".to_owned(),
        exit: 0,
        steps: vec![step],
        troubles: Vec::new(),
        undelivered: undelivered.iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn a_run_of_a_wrong_clock_keeps_none_from_being_made() {
    let year = 366 * 86_400_000_000_000;
    let now = Timestamp(57 * year);
    let has_begun = |runs: &[i64], noted: Option<i64>| {
        let runs = runs.iter().map(|at| run(now.0 + at, &[])).collect();
        let record = Record { runs, ..Record::default() };
        record.has_begun(
            &["backup"],
            Timestamp(now.0 - 10),
            noted.map(|at| Moment(Timestamp(now.0 + at))),
            now,
        )
    };
    for (runs, noted, begun) in [
        (&[][..], None, false),
        (&[-11], None, false),
        (&[-9], None, true),
        // Within an hour, clocks are put right.
        (&[60_000_000_000], None, true),
        (&[10 * year], None, false),
        (&[10 * year, -9], None, true),
        (&[-9, -10 * year], None, true),
        (&[i64::MAX - now.0, i64::MIN + now.0], None, false),
        (&[-11], Some(-9), true),
        (&[-11], Some(10 * year), false),
    ] {
        assert_eq!(has_begun(runs, noted), begun, "{runs:?} {noted:?}");
    }
}

/// Any file is read as a record or refused, and a record can be shown.
#[test]
fn rubbish_is_refused_or_shown() {
    let mut record = Record::default();
    (0..4).for_each(|at| record.push(run(at, &["anna"])));
    record.runs[3].steps[0].output = "all of it".to_owned();
    let whole = serde_json::json!(record).to_string().into_bytes();
    let mut random = strongroom_testkit::Random::new(25);
    let parts: [&[u8]; 12] = [
        b"1e308",
        b"-1",
        b"null",
        b"\"\"",
        b"[]",
        b"{}",
        b"300",
        b"\"9999-12-31T23:59:59Z\"",
        b"\"-009999-01-01T00:00:00Z\"",
        b"\xff",
        b"\\u0000\\u202e",
        b"18446744073709551616",
    ];
    let (mut refused, mut shown) = (0, 0);
    for _ in 0..20_000 {
        let mut bytes = whole.clone();
        for _ in 0..=random.below(2) {
            let at = random.below(bytes.len() as u64) as usize;
            let to = (at + random.below(24) as usize).min(bytes.len());
            match random.below(4) {
                0 => bytes[at] = random.number() as u8,
                1 => bytes.truncate(at),
                2 => drop(bytes.splice(at..to, random.pick(&parts).iter().copied())),
                // In place of a value: from behind a colon to the next end of one.
                _ => {
                    let colon = bytes[at..].iter().position(|byte| *byte == b':');
                    let from = colon.map_or(at, |colon| at + colon + 1);
                    let end = bytes[from..].iter().position(|byte| b",}]".contains(byte));
                    let to = end.map_or(bytes.len(), |end| from + end);
                    bytes.splice(from..to, random.pick(&parts).iter().copied());
                }
            }
            if bytes.is_empty() {
                break;
            }
        }
        let Ok(mut record) = Record::parse(&bytes) else {
            refused += 1;
            continue;
        };
        shown += 1;
        show(&record);
        record.push(run(9, &["bert"]));
        show(&record);
        assert!(Record::parse(serde_json::json!(record).to_string().as_bytes()).is_ok());
    }
    assert!(refused > 1000 && shown > 1000, "{refused} refused, {shown} shown");
}

fn show(record: &Record) {
    use super::super::report;
    for now in [0, 1 << 60, i64::MAX, i64::MIN].map(Timestamp) {
        report::state_of(record, &["backup"], Some(1), now);
        record.dated_ahead(now);
        record.has_begun(&["backup"], now, None, now);
        report::earlier_troubles(record, &["backup", "verify"], now);
        let earlier = record.undelivered_before("anna");
        for run in &record.runs {
            let notice = report::notice("default", run, strongroom_notice::Verdict::Good);
            report::with_earlier(notice, "default", &earlier, now);
        }
    }
    let metrics = report::metrics("a\"b", record);
    assert!(metrics.lines().all(|line| line.starts_with('#') || line.starts_with("strongroom_")));
}

/// Of the runs the last are recorded, so those of a backup that has stopped may all be forgotten.
#[test]
fn a_backup_that_stopped_long_ago_stays_too_old() {
    use super::super::report::{State, state_of};
    let mut record = Record::default();
    record.last_good.insert("backup".to_owned(), Moment(Timestamp(10)));
    for at in 0..200 {
        let mut other = run(at, &[]);
        other.steps[0].step = "verify".to_owned();
        record.push(other);
    }
    assert!(record.runs.iter().all(|run| run.steps.iter().all(|step| step.step != "backup")));
    assert_eq!(state_of(&record, &["backup"], Some(50), Timestamp(100)).0, State::Bad);
}

#[test]
fn what_was_not_delivered_is_kept_within_bounds() {
    let mut record = Record::default();
    for at in 0..200 {
        record.push(run(at, if at % 2 == 0 { &["anna", "bert"] } else { &[] }));
        record.replace_last(run(at, if at % 2 == 0 { &["anna", "bert"] } else { &[] }));
    }
    assert_eq!(record.runs.len(), RUNS_MAX);
    let times = |record: &Record, recipient: &str| {
        let runs = record.undelivered_before(recipient);
        runs.iter().map(|run| run.started.0.0).collect::<Vec<_>>()
    };
    assert_eq!(times(&record, "anna"), [198, 196, 194, 192, 190]);
    let kept = record.runs.iter().map(|run| run.steps[0].output.len()).sum::<usize>();
    assert_eq!(kept, 5 * OUTPUT_BYTES_MAX + 2 * OUTPUT_BYTES_MAX, "the last is whole");
    record.is_delivered("anna");
    assert!(times(&record, "anna").is_empty());
    assert_eq!(times(&record, "bert").len(), 5);
    record.is_delivered("bert");
    record.push(run(200, &[]));
    let kept = record.runs.iter().map(|run| run.steps[0].output.len()).sum::<usize>();
    assert_eq!(kept, 2 * OUTPUT_BYTES_MAX, "only of the last");
}

/// What is due is due for each step: many runs of some leave no trace of others among the last.
#[test]
fn a_run_of_some_steps_is_none_of_others() {
    use super::super::report::{State, earlier_troubles, state_of};
    let of = |at: i64, step: &str, outcome: &str| {
        let mut run = run(at, &[]);
        run.steps[0].step = step.to_owned();
        run.steps[0].outcome = outcome.to_owned();
        if outcome == "failed" {
            run.verdict = "failed".to_owned();
        }
        run
    };
    let (due, now) = (Timestamp(100), Timestamp(1_000));
    let mut record = Record::default();
    record.push(of(50, "backup", "good"));
    record.push(of(110, "drill", "warning"));
    let has_begun = |record: &Record, steps: &[&str]| record.has_begun(steps, due, None, now);
    assert!(has_begun(&record, &["drill"]) && !has_begun(&record, &["backup", "drill"]));
    // It proved nothing.
    assert_eq!(record.last_good.get("drill"), None);
    record.push(of(120, "backup", "failed"));
    for at in 0..200 {
        record.push(of(130 + at, "verify", "good"));
    }
    assert!(has_begun(&record, &["backup", "drill", "verify"]));
    let steps = ["backup", "drill", "verify"];
    assert_eq!(state_of(&record, &steps, None, now).0, State::Bad);
    assert_eq!(earlier_troubles(&record, &steps, now).len(), 2);
    // A step that the profile has no more counts for nothing.
    assert_eq!(state_of(&record, &["verify"], None, now).0, State::Good);
    record.push(of(400, "backup", "good"));
    assert_eq!(state_of(&record, &steps, None, now).0, State::Warning);
    record.push(RunRecord::unended(Moment(Timestamp(500))));
    record.push(of(600, "verify", "good"));
    assert_eq!(state_of(&record, &steps, None, now).0, State::Bad);
    assert!(earlier_troubles(&record, &steps, now)[1].contains("backup: did not end"));
}
