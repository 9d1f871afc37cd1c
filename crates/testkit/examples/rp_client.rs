//! A client of an RP* file: fills it with records from a seed, changes and compares them.
//!
//! `rp_client --servers ADDR,ADDR,... [--seed N] [--records N] [--value-bytes-max N]
//! [--updated P,P,...] [--patience-seconds N] fill | update P | check | status`
//!
//! `--updated` names the shares, in percent, that earlier runs of `update` changed, in their order.
//! `check` ends with an error if a record is missing, wrong or too much.
#![expect(clippy::print_stdout, reason = "an example prints what it found")]

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use strongroom_testkit::rp::{Client, Workload};

const USAGE: &str = "usage: rp_client --servers ADDR,... [--seed N] [--records N] \
    [--value-bytes-max N] [--updated P,P,...] [--patience-seconds N] \
    fill | update P | check | status";

type Failure = Box<dyn std::error::Error>;

#[expect(clippy::print_stderr, reason = "an example says what went wrong")]
fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "an example reads its arguments")]
fn run() -> Result<(), Failure> {
    let mut words = std::env::args().skip(1);
    let mut servers: Vec<SocketAddr> = Vec::new();
    let mut workload = Workload::new(1, 10_000, 200);
    let (mut patience, mut verb) = (Duration::from_secs(30), Vec::new());
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(USAGE);
        match word.as_str() {
            "--servers" => {
                servers = value()?.split(',').map(str::parse).collect::<Result<_, _>>()?
            }
            "--seed" => workload.seed = value()?.parse()?,
            "--records" => workload.records = value()?.parse()?,
            "--value-bytes-max" => workload.value_bytes_max = value()?.parse()?,
            "--updated" => {
                let shares = value()?;
                let shares = shares.split(',').filter(|share| !share.is_empty());
                workload.updates = shares.map(str::parse).collect::<Result<_, _>>()?;
            }
            "--patience-seconds" => patience = Duration::from_secs(value()?.parse()?),
            _ => verb.push(word),
        }
    }
    let verb: Vec<&str> = verb.iter().map(String::as_str).collect();
    carry_out(&verb, &mut Client::new(servers, patience), &mut workload)
}

fn carry_out(verb: &[&str], client: &mut Client, workload: &mut Workload) -> Result<(), Failure> {
    match verb {
        ["fill"] => {
            workload.fill(client)?;
            println!("{} records are put", workload.records);
        }
        ["update", percent] => {
            let changed = workload.update(client, percent.parse()?)?;
            println!("{changed} records are changed");
        }
        ["check"] => {
            let checked = workload.check(client)?;
            let (missing, wrong) = (checked.missing, checked.wrong);
            println!(
                "{} equal, {missing} missing, {wrong} wrong, {} extra",
                checked.equal, checked.extra
            );
            if !checked.is_equal() {
                return Err("the file differs from what was put".into());
            }
        }
        ["status"] => {
            let (statuses, silent) = client.statuses();
            for (address, status) in statuses {
                let range = status.range.map_or_else(|| "-".to_owned(), |range| range.to_string());
                let (bucket, version) = (status.bucket, status.split_version);
                let (condition, records) = (status.condition, status.records);
                println!(
                    "{address} bucket {bucket} {condition:?} {range} version {version} records {records}"
                );
            }
            silent.iter().for_each(|address| println!("{address} does not answer"));
        }
        _ => return Err(USAGE.into()),
    }
    Ok(())
}
