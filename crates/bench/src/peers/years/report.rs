//! The document.

use super::placement::Placed;
use super::{Pair, Results, Round};
use crate::peers::data::Scale;
use crate::peers::measure::Usage;
use crate::peers::report::Machine;
use crate::peers::results::{OURS, median};
use crate::table::{NONE, counted, megabytes, row, seconds, table, times};

/// The whole document.
pub fn text(results: &[Results], machine: &Machine, scale: Scale) -> String {
    let mut parts = vec![head(results, machine, scale)];
    let unequal: Vec<String> = results
        .iter()
        .flat_map(|of| of.unequal.iter().map(move |what| format!("{}, {what}", of.version)))
        .collect();
    if !unequal.is_empty() {
        parts.push(format!("**Not restored as stored: {}.**", unequal.join("; ")));
    }
    parts.extend(["## Every second snapshot forgotten".to_owned(), rounds(results)]);
    parts.push(targets(results));
    parts.extend(["## A backup beside it".to_owned(), beside(results)]);
    parts.extend(["## Placement".to_owned(), placement(results)]);
    parts.extend(["## Sixty backups".to_owned(), history(results)]);
    parts.extend(["## Commands".to_owned(), commands(results)]);
    let trimmed: Vec<&str> = parts.iter().map(|part| part.trim()).collect();
    format!("{}\n", trimmed.join("\n\n"))
}

fn head(results: &[Results], machine: &Machine, scale: Scale) -> String {
    let small = match scale {
        Scale::Full => "",
        Scale::Small => " **At the small scale: these numbers say that all works, and no more.**",
    };
    let ours = results.iter().find(|of| of.tool == OURS).or(results.first());
    let (about, size, revision) = ours.map_or_else(Default::default, |of| {
        let size = format!("{}, {} MB", counted(of.files, "file"), megabytes(of.bytes as f64));
        (of.about.clone(), size, of.revision.clone())
    });
    format!(
        "# Years\n\nMade by `cargo run -p strongroom-bench --release -- years`, at commit \
         {revision}; not edited by hand.{small} Each program stores 60 versions of a tree: {about} \
         (the last one: {size}). Then 30 snapshots are forgotten, every second one, and their room \
         is given back: \
         in rounds, on a copy of the same repository each time, which is read once before. Medians \
         of all rounds. Times are seconds on the wall (and seconds of all processors). Wall seconds \
         depend on what else the machine does. Bytes read and written are those of the read and \
         write calls, from memory or not. Memory is the most that one process had resident. The \
         oldest and the newest snapshot that stayed were then restored and compared with what was \
         stored.\n\n{}",
        machine.text()
    )
}

fn rounds(results: &[Results]) -> String {
    let mut rows = vec![row([
        "",
        "forget",
        "prune",
        "CPU of both",
        "peak MiB",
        "MB read",
        "MB written",
        "MB before",
        "MB after",
    ])];
    let all = |of: &Results| format!("{}, all of it", of.version);
    for (of, version, measured) in results
        .iter()
        .flat_map(|of| [(of, of.version.clone(), &of.rounds), (of, all(of), &of.rounds_of_all)])
    {
        let middle = |what: &dyn Fn(&Round) -> f64| median_of(measured, what);
        let Some(stored) = middle(&|round| round.stored as f64) else {
            if of.rounds.is_empty() && version == of.version {
                rows.push(row([version, of.failed.clone().unwrap_or_default()]));
            }
            continue;
        };
        let time = |what: fn(&Round) -> Usage| {
            let wall = middle(&|round| what(round).wall).unwrap_or_default();
            let cpu = middle(&|round| what(round).cpu).unwrap_or_default();
            format!("{} ({})", seconds(wall), seconds(cpu))
        };
        let sum = |what: fn(&Usage) -> f64| {
            middle(&|round| what(&round.forget) + what(&round.free)).unwrap_or_default()
        };
        rows.push(row([
            version,
            time(|round| round.forget),
            time(|round| round.free),
            seconds(cpu_of(measured).unwrap_or_default()),
            peak_mib(measured).to_string(),
            megabytes(sum(|usage| usage.read_bytes as f64)),
            megabytes(sum(|usage| usage.written_bytes as f64)),
            megabytes(of.stored as f64),
            megabytes(stored),
        ]));
    }
    let mut text = table(&rows);
    let compared: Vec<String> = results
        .iter()
        .filter(|of| !of.compared.is_empty() && of.unequal.is_empty())
        .map(|of| format!("{} ({})", of.version, of.compared.join(", ")))
        .collect();
    text += &format!("\nRestored as stored afterwards: {}.", compared.join("; "));
    text
}

/// The targets of this, and whether they are met.
fn targets(results: &[Results]) -> String {
    let find = |tool: &str| results.iter().find(|of| of.tool == tool && !of.rounds.is_empty());
    let Some(ours) = find(OURS) else { return String::new() };
    let mut rows = vec![row(["forget and prune", "wall", "CPU", ""])];
    let limits = [("restic", 0.2, "at most 0.20×"), ("borg", 1.0, "below 1×")];
    for (tool, limit, says) in limits.into_iter().chain([("bupstash", f64::MAX, "beside it")]) {
        let Some(peer) = find(tool) else { continue };
        let ratio = |what: fn(&[Round]) -> Option<f64>| {
            what(&ours.rounds).zip(what(&peer.rounds)).map(|(ours, theirs)| ours / theirs)
        };
        let (Some(wall), Some(cpu)) = (ratio(wall_of), ratio(cpu_of)) else { continue };
        let verdict = match limit {
            f64::MAX => "",
            _ if wall <= limit && cpu <= limit => ": met",
            _ => ": **missed**",
        };
        rows.push(row([
            format!("of {}", peer.version),
            times(wall),
            times(cpu),
            format!("{says}{verdict}"),
        ]));
    }
    let peak_mib = peak_mib(&ours.rounds).max(peak_mib(&ours.rounds_of_all));
    let verdict = if peak_mib <= 150 { "met" } else { "**missed**" };
    let memory = format!("\nMemory of at most 150 MiB: {verdict} ({peak_mib} MiB).");
    table(&rows) + &memory
}

fn beside(results: &[Results]) -> String {
    let mut rows = vec![row(["", "alone", "beside", "wall", "CPU", "each prune beside it"])];
    let mut said = Vec::new();
    for of in results.iter().filter(|of| !of.pairs.is_empty()) {
        let time = |usages: &[Usage]| {
            let wall = median_of(usages, &|usage| usage.wall)?;
            let cpu = median_of(usages, &|usage| usage.cpu)?;
            Some(format!("{} ({})", seconds(wall), seconds(cpu)))
        };
        let alone: Vec<Usage> = of.pairs.iter().map(|pair| pair.alone).collect();
        let beside: Vec<Usage> =
            of.pairs.iter().filter_map(|pair| pair.beside.clone().ok()).collect();
        let ratio = |what: fn(&Usage) -> f64| {
            let each = of
                .pairs
                .iter()
                .filter_map(|pair| Some(what(pair.beside.as_ref().ok()?) / what(&pair.alone)));
            median(each.collect()).map_or(NONE.to_owned(), times)
        };
        let freeing: Vec<f64> =
            of.pairs.iter().flat_map(|pair| pair.freeing.iter().copied()).collect();
        rows.push(row([
            of.version.clone(),
            time(&alone).unwrap_or_default(),
            time(&beside).unwrap_or_else(|| "refused".to_owned()),
            ratio(|usage| usage.wall),
            ratio(|usage| usage.cpu),
            median(freeing).map_or(NONE.to_owned(), seconds),
        ]));
        said.extend(complaints(of));
    }
    let said = if said.is_empty() { String::new() } else { format!("\n{}", said.join("\n")) };
    let pairs = results.iter().map(|of| of.pairs.len()).max().unwrap_or_default();
    format!(
        "A backup of version 61, after the 30 snapshots were forgotten: alone, and a tenth of a \
         second after `prune` began, which begins again a second after it ended, until the backup \
         has ended. In turn; the medians of {pairs} pairs of Strongroom's, and one pair of the \
         others'.\n\n{}{said}",
        table(&rows)
    )
}

/// Snapshots restored, and how they lie.
fn placement(results: &[Results]) -> String {
    let mut rows = vec![row(["", "requests", "least", "MB read", "restored in"])];
    let mut said = String::new();
    for of in results {
        let Some(placement) = &of.placement else { continue };
        for Placed { name, lies, restores } in &placement.snapshots {
            let wall = median_of(restores, &|usage| usage.wall).unwrap_or_default();
            let cpu = median_of(restores, &|usage| usage.cpu).unwrap_or_default();
            rows.push(row([
                format!("{}, {name}", of.version),
                lies.requests.to_string(),
                lies.requests_least.to_string(),
                megabytes(lies.read_bytes as f64),
                format!("{} ({})", seconds(wall), seconds(cpu)),
            ]));
        }
        let Usage { wall, cpu, peak_kib, written_bytes, .. } = placement.gathering;
        said += &format!(
            "\nBringing together, with a prune: {} ({}) seconds, {} MiB, {} MB written.",
            seconds(wall),
            seconds(cpu),
            peak_kib >> 10,
            megabytes(written_bytes as f64)
        );
        if let [oldest, .., together] = &placement.snapshots[..] {
            let ratio = together.lies.requests as f64 / oldest.lies.requests.max(1) as f64;
            let verdict = if ratio <= 1.1 { "met" } else { "**missed**" };
            said += &format!(
                " Requests for the newest against the oldest: {}; at most 1.10×: {verdict}.",
                times(ratio)
            );
        }
    }
    format!(
        "The whole of a snapshot restored into a folder in memory, while nothing of the repository \
         is in the kernel's; in turn, medians.\n\n{}{said}",
        table(&rows)
    )
}

/// What a program said when it did not do both at once.
fn complaints(of: &Results) -> Vec<String> {
    let refused = |pair: &Pair| pair.beside.clone().err();
    let count = of.pairs.iter().filter_map(refused).count();
    let mut lines = Vec::new();
    if let Some(said) = of.pairs.iter().find_map(refused) {
        let pairs = counted(of.pairs.len() as u64, "backup");
        lines.push(format!("- {}: {count} of {pairs} failed: `{}`", of.version, plain(&said)));
    }
    if let Some(said) = of.pairs.iter().find_map(|pair| pair.freeing_failed.first()) {
        let failed: usize = of.pairs.iter().map(|pair| pair.freeing_failed.len()).sum();
        let all = failed + of.pairs.iter().map(|pair| pair.freeing.len()).sum::<usize>();
        lines.push(format!(
            "- {}: {failed} of {} ended otherwise: `{}`",
            of.version,
            counted(all as u64, "prune"),
            plain(said)
        ));
    }
    lines
}

/// Without paths of this machine, and what would end the quotation.
fn plain(said: &str) -> String {
    let word = |word: &str| match word.contains("/bench/") {
        true => "REPOSITORY".to_owned(),
        false => word.replace('`', "'"),
    };
    said.split_whitespace().map(word).collect::<Vec<_>>().join(" ")
}

fn history(results: &[Results]) -> String {
    let mut rows = vec![row(["", "all 60", "peak MiB", "MB stored"])];
    for of in results {
        rows.push(row([
            of.version.clone(),
            format!("{} ({})", seconds(of.backups.wall), seconds(of.backups.cpu)),
            (of.backups.peak_kib >> 10).to_string(),
            megabytes(of.stored as f64),
        ]));
    }
    table(&rows)
}

fn commands(results: &[Results]) -> String {
    let lines = results.iter().flat_map(|of| &of.commands).map(|line| format!("{line}\n"));
    format!("```text\n{}```", lines.collect::<String>())
}

fn median_of<T>(all: &[T], what: &dyn Fn(&T) -> f64) -> Option<f64> {
    median(all.iter().map(what).collect())
}

fn wall_of(rounds: &[Round]) -> Option<f64> {
    median_of(rounds, &|round| round.forget.wall + round.free.wall)
}

fn cpu_of(rounds: &[Round]) -> Option<f64> {
    median_of(rounds, &|round| round.forget.cpu + round.free.cpu)
}

fn peak_mib(rounds: &[Round]) -> u64 {
    let peaks = rounds.iter().map(|round| round.forget.peak_kib.max(round.free.peak_kib));
    peaks.max().unwrap_or_default() >> 10
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(tool: &str, seconds: f64) -> Results {
        let usage = |wall| Usage { wall, cpu: wall / 2.0, peak_kib: 100 << 10, ..Usage::default() };
        let beside = match tool {
            OURS => Ok(usage(1.05)),
            _ => Err("locked by `7` in /data/bench/years/x".to_owned()),
        };
        Results {
            tool: tool.to_owned(),
            version: format!("{tool} 1.0"),
            stored: 9_000_000,
            rounds: vec![Round { forget: usage(0.1), free: usage(seconds), stored: 6_000_000 }],
            pairs: vec![Pair {
                alone: usage(1.0),
                beside,
                freeing: vec![2.0],
                freeing_failed: Vec::new(),
            }],
            compared: vec!["v60".to_owned()],
            ..Results::default()
        }
    }

    #[test]
    fn targets_are_met_or_missed() {
        let made = |ours, restic, borg| {
            let all = [results(OURS, ours), results("restic", restic), results("borg", borg)];
            text(&all, &Machine::default(), Scale::Small)
        };
        let good = made(1.0, 20.0, 2.0);
        assert!(good.contains("| of restic 1.0 | 0.05× | 0.05× | at most 0.20×: met |"), "{good}");
        assert!(good.contains("| of borg 1.0 | 0.52× | 0.52× | below 1×: met |"), "{good}");
        assert!(good.contains("150 MiB: met (100 MiB)"), "{good}");
        assert!(
            good.contains("| strongroom 1.0 | 1.00 (0.50) | 1.05 (0.53) | 1.05× | 1.05× |"),
            "{good}"
        );
        assert!(good.contains("1 of 1 backup failed: `locked by '7' in REPOSITORY`"), "{good}");
        assert_eq!(made(5.0, 20.0, 2.0).matches("**missed**").count(), 2);
    }

    #[test]
    fn what_differs_is_in_bold() {
        let mut of = results(OURS, 1.0);
        of.unequal.push("v2: 1 differences".to_owned());
        let text = text(&[of], &Machine::default(), Scale::Full);
        assert!(text.contains("**Not restored as stored: strongroom 1.0, v2: 1 differences.**"));
        assert!(!text.contains("afterwards: strongroom"));
    }
}
