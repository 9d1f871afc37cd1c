//! A file that grows over servers, clients with old tables, and servers that are gone.

use std::io::{Read, Write};
use std::net::TcpStream;

use strongroom_base::Stopwatch;
use strongroom_bucket::KeyRange;

use super::super::link::{receive, send};
use super::super::wire::{Answer, Request};
use super::super::*;
use super::{PATIENCE, Running, client, file, fill_in_order, start};

/// The ranges of all servers that have one, sorted: they must be the whole key space.
fn ranges(servers: &[Running]) -> Vec<KeyRange> {
    let statuses = servers.iter().map(|server| server.0.status());
    let mut ranges: Vec<KeyRange> = statuses.filter_map(|status| status.range).collect();
    ranges.sort();
    assert_eq!(ranges.first().unwrap().low, b"");
    assert_eq!(ranges.last().unwrap().high, None);
    for pair in ranges.windows(2) {
        assert_eq!(pair[0].high.as_ref(), Some(&pair[1].low));
    }
    ranges
}

#[test]
fn a_file_grows_from_one_server_to_five_and_old_tables_are_corrected() {
    let servers = file(4, 24);
    let mut workload = Workload::new(11, 150, 800);
    let mut old = client(&servers);
    workload.fill(&mut old).unwrap();
    assert_eq!(ranges(&servers).len(), 1);
    assert_eq!(old.images().len(), 1);

    // Another client makes the file grow, and the first one has an old table.
    workload.records = 1200;
    let mut other = client(&servers);
    fill_in_order(&mut other, &workload);
    assert_eq!(ranges(&servers).len(), 5, "each spare has a part");
    assert_eq!(old.images().len(), 1);
    for record in 0..workload.records {
        assert_eq!(old.get(&workload.key(record)).unwrap(), Some(workload.value(record)));
    }
    assert!(old.corrections() > 0, "its table was old");
    let corrections = old.corrections();
    assert_eq!(workload.check(&mut old).unwrap().equal, workload.records);
    for record in 0..workload.records {
        assert_eq!(old.get(&workload.key(record)).unwrap(), Some(workload.value(record)));
    }
    assert!(old.corrections() <= corrections + 1, "a corrected table is right");

    // Versions rise on both sides of a split, and each server has what it says.
    let statuses: Vec<Status> = servers.iter().map(|server| server.0.status()).collect();
    assert!(statuses.iter().all(|status| status.split_version > 0));
    assert_eq!(statuses.iter().map(|status| status.records).sum::<u64>(), workload.records);

    let changed = workload.update(&mut other, 5).unwrap();
    assert!(changed > 20 && changed < 200, "{changed} of 1200 are not about 5 %");
    let checked = workload.check(&mut client(&servers)).unwrap();
    assert_eq!(checked, Checked { equal: workload.records, ..Checked::default() });
}

#[test]
fn scans_go_over_all_ranges_in_order_and_differences_are_counted() {
    let servers = file(3, 30);
    let workload = Workload::new(12, 1800, 900);
    let mut client = client(&servers);
    workload.fill(&mut client).unwrap();
    assert!(ranges(&servers).len() > 2);
    let mut keys = Vec::new();
    let range = KeyRange { low: b"3".to_vec(), high: Some(b"d".to_vec()) };
    client.scan(&range, &mut |key, _| keys.push(key)).unwrap();
    assert!(keys.is_sorted_by(|one, other| one < other));
    let mut expected: Vec<Vec<u8>> = (0..1800).map(|record| workload.key(record)).collect();
    expected.retain(|key| range.contains(key));
    expected.sort();
    assert_eq!(keys, expected);

    assert!(client.remove(&workload.key(5)).unwrap());
    assert!(!client.remove(&workload.key(5)).unwrap());
    client.put(&workload.key(6), b"another").unwrap();
    client.put(b"one more", b"").unwrap();
    let checked = workload.check(&mut client).unwrap();
    assert_eq!(checked, Checked { equal: 1798, missing: 1, wrong: 1, extra: 1 });
    assert!(!checked.is_equal());
}

#[test]
fn many_clients_split_a_file_at_the_same_time() {
    let servers = file(4, 24);
    let workloads: Vec<Workload> = (0..4).map(|seed| Workload::new(seed, 450, 700)).collect();
    std::thread::scope(|scope| {
        for workload in &workloads {
            let mut client = client(&servers);
            scope.spawn(move || workload.fill(&mut client).unwrap());
        }
    });
    assert!(ranges(&servers).len() > 2);
    let mut client = client(&servers);
    for workload in &workloads {
        for record in 0..workload.records {
            assert_eq!(client.get(&workload.key(record)).unwrap(), Some(workload.value(record)));
        }
    }
    let records: u64 = servers.iter().map(|server| server.0.status().records).sum();
    assert_eq!(records, 1800);
}

#[test]
fn a_full_file_without_a_spare_is_an_error() {
    let servers = file(0, 10);
    let error = Workload::new(13, 500, 900).fill(&mut client(&servers)).unwrap_err();
    assert!(error.to_string().contains("--spare"), "{error}");
    // One that comes later makes itself known.
    let peers = super::addresses(&servers);
    let spare = start(1, Role::Spare, 40, &peers);
    let small = Workload::new(13, 200, 900);
    let waited = Stopwatch::start();
    while let Err(error) = small.fill(&mut client(&servers)) {
        assert!(waited.elapsed() < PATIENCE, "{error}");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(spare.0.status().records > 0);
    assert_eq!(small.check(&mut client(&servers)).unwrap().missing, 0);
}

#[test]
fn a_server_that_is_gone_is_an_error_that_names_it() {
    let servers = file(2, 30);
    let workload = Workload::new(14, 500, 900);
    let mut client = client(&servers);
    fill_in_order(&mut client, &workload);
    let gone = &servers[1];
    let range = gone.0.status().range.unwrap();
    let address = gone.0.address();
    gone.0.stop();
    let waited = Stopwatch::start();
    let error = workload.check(&mut client).unwrap_err();
    assert!(waited.elapsed() < std::time::Duration::from_secs(10));
    let RpError::NoServer { silent, .. } = &error else { panic!("{error}") };
    assert_eq!(silent, &[address]);
    // All other ranges are as they were.
    let below = KeyRange { low: Vec::new(), high: Some(range.low.clone()) };
    let checked = workload.check_range(&mut client, &below).unwrap();
    assert!(checked.is_equal() && checked.equal > 0, "{checked:?}");
}

#[test]
fn bytes_that_are_no_message_end_their_connection_alone() {
    let servers = file(0, 20);
    let address = servers[0].0.address();
    for bytes in [&[0xff; 64][..], &[4, 0, 0, 0, 99, 1, 2, 3], &[200, 0, 0, 0, 1]] {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
    }
    let mut client = client(&servers);
    client.put(b"key", b"value").unwrap();
    assert_eq!(client.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
}

#[test]
fn a_record_that_is_too_long_is_refused_before_it_is_sent() {
    let servers = file(0, 20);
    let mut client = client(&servers);
    let error = client.put(b"key", &vec![0; 2 << 20]).unwrap_err();
    assert!(matches!(error, RpError::Tree(TreeError::TooLong { .. })), "{error}");
    assert_eq!(client.get(&[b'k'; KEY_BYTES_MAX + 1]).unwrap(), None);
}

#[test]
fn a_client_gives_up_if_servers_contradict_themselves() {
    // It says that it has all keys, and that it has none.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                while let Ok(Some(message)) = receive(&mut stream) {
                    let status = Status {
                        bucket: 0,
                        condition: Condition::Serving,
                        range: Some(KeyRange::whole()),
                        split_version: 0,
                        records: 0,
                        given: Vec::new(),
                    };
                    let answer = match Request::decode(&message).unwrap() {
                        Request::Status => Answer::Status(status),
                        _ => Answer::Empty,
                    };
                    send(&mut stream, &answer.encode()).unwrap();
                }
            });
        }
    });
    let error = Client::new(vec![address], PATIENCE).get(b"key").unwrap_err();
    assert!(matches!(error, RpError::NoServer { .. }), "{error}");
}
