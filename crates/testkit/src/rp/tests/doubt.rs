//! Splits that do not go as planned: the other server is played by the test.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use strongroom_base::Stopwatch;

use super::super::link::{Link, receive, send};
use super::super::wire::{Answer, Request, SplitId};
use super::super::*;
use super::{PATIENCE, Running, start};
use strongroom_bucket::KeyRange;

/// A spare that takes all and ends the connection at the commit; `ending` is what it says of it when
/// it is asked, as soon as the test has sent it.
fn deserter(ending: Receiver<Answer>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            while let Ok(Some(message)) = receive(&mut stream) {
                let answer = match Request::decode(&message).unwrap() {
                    Request::SplitBegin(..) => Answer::Done(0),
                    Request::SplitRecords(records) => Answer::Done(records.len() as u32),
                    Request::SplitCommit(_) => break,
                    Request::SplitAsk(_) => match ending.try_recv() {
                        Ok(answer) => answer,
                        Err(_) => break,
                    },
                    _ => Answer::Empty,
                };
                send(&mut stream, &answer.encode()).unwrap();
            }
        }
    });
    address
}

/// A server with a split in doubt, and what its clients can put.
fn in_doubt(ending: Receiver<Answer>) -> (Running, Workload) {
    let server = start(0, Role::First, 20, &[deserter(ending)]);
    let workload = Workload::new(21, 800, 900);
    let mut client = Client::new(vec![server.0.address()], Duration::from_millis(100));
    let error = workload.fill(&mut client).unwrap_err();
    assert!(matches!(error, RpError::Busy { .. }), "{error}");
    assert_eq!(server.0.status().condition, Condition::InDoubt);
    (server, workload)
}

fn wait_for(server: &Server, condition: Condition) -> Status {
    let waited = Stopwatch::start();
    while server.status().condition != condition {
        assert!(waited.elapsed() < PATIENCE, "{:?}", server.status());
        std::thread::sleep(Duration::from_millis(5));
    }
    server.status()
}

#[test]
fn a_split_in_doubt_blocks_the_upper_half_and_each_quiesce() {
    let (end, ending) = channel();
    let (server, _) = in_doubt(ending);
    let before = server.0.status();
    assert_eq!(before.range, Some(KeyRange::whole()), "it still has all records");
    let error = server.0.quiesce().unwrap_err();
    assert!(error.contains("not known"), "{error}");
    let mut client = Client::new(vec![server.0.address()], Duration::from_millis(100));
    client.put(b"0", b"the lower half is served").unwrap();
    assert!(matches!(client.get(b"fff"), Err(RpError::Busy { .. })));
    assert!(matches!(client.put(b"fff", b""), Err(RpError::Busy { .. })));
    let mut seen = 0;
    let scanned = client.scan(&KeyRange::whole(), &mut |_, _| seen += 1);
    assert!(matches!(scanned, Err(RpError::Busy { .. })), "{scanned:?}");
    assert!(seen > 0 && seen < before.records, "{seen} are not the lower half");

    end.send(Answer::NotTaken).unwrap();
    let after = wait_for(&server.0, Condition::Serving);
    assert_eq!((after.records, after.split_version), (before.records + 1, 0));
    assert_eq!(client.get(b"fff").unwrap(), None);
    server.0.quiesce().unwrap();
}

#[test]
fn a_split_that_was_taken_without_an_answer_is_finished() {
    let (end, ending) = channel();
    let (server, _) = in_doubt(ending);
    let before = server.0.status();
    end.send(Answer::Taken).unwrap();
    let after = wait_for(&server.0, Condition::Serving);
    assert_eq!(after.split_version, 1);
    assert!(after.records > 0 && after.records < before.records);
    assert!(after.range.unwrap().high.is_some());
    server.0.quiesce().unwrap();
}

/// Asks a server as another server would.
fn ask(link: &mut Link, request: Request) -> Answer {
    link.ask(&request).unwrap()
}

const SPLIT: SplitId = SplitId { bucket: 5, version: 9 };

fn offer() -> Request {
    Request::SplitBegin(SPLIT, KeyRange { low: b"m".to_vec(), high: None })
}

fn offered(server: &Server) -> Link {
    let mut link = Link::connect(server.address(), PATIENCE).unwrap();
    assert_eq!(ask(&mut link, offer()), Answer::Done(0));
    let records = vec![(b"n".to_vec(), b"value".to_vec())];
    assert_eq!(ask(&mut link, Request::SplitRecords(records)), Answer::Done(1));
    assert_eq!(server.status().condition, Condition::Splitting);
    link
}

#[test]
fn a_range_whose_server_is_gone_before_the_commit_is_undone() {
    let spare = start(1, Role::Spare, 20, &[]);
    let link = offered(&spare.0);
    let quiesced = spare.0.clone();
    let quiescing = std::thread::spawn(move || quiesced.quiesce());
    std::thread::sleep(Duration::from_millis(50));
    assert!(!quiescing.is_finished(), "a quiesce waits for the split");
    drop(link);
    quiescing.join().unwrap().unwrap();
    assert_eq!(spare.0.status().condition, Condition::Quiesced);
    assert_eq!((spare.0.status().range, spare.0.status().records), (None, 0));
    // No split begins while it is quiesced.
    let mut link = Link::connect(spare.0.address(), PATIENCE).unwrap();
    assert!(matches!(ask(&mut link, offer()), Answer::Busy(_)));
    spare.0.resume();
    drop(offered(&spare.0));
    wait_for(&spare.0, Condition::Spare);
}

#[test]
fn a_commit_that_comes_after_the_question_comes_too_late() {
    let spare = start(1, Role::Spare, 20, &[]);
    let mut link = offered(&spare.0);
    let mut other = Link::connect(spare.0.address(), PATIENCE).unwrap();
    assert_eq!(ask(&mut other, Request::SplitAsk(SPLIT)), Answer::NotTaken);
    assert_eq!(ask(&mut link, Request::SplitCommit(SPLIT)), Answer::NotTaken);
    assert_eq!(spare.0.status().condition, Condition::Spare);

    let mut link = offered(&spare.0);
    assert_eq!(ask(&mut other, Request::SplitCommit(SPLIT)), Answer::NotTaken, "of another");
    assert_eq!(ask(&mut link, Request::SplitCommit(SPLIT)), Answer::Taken);
    drop(link);
    assert_eq!(ask(&mut other, Request::SplitAsk(SPLIT)), Answer::Taken);
    assert_eq!(spare.0.status().split_version, 9);
    let mut client = Client::new(vec![spare.0.address()], PATIENCE);
    assert_eq!(client.get(b"n").unwrap().as_deref(), Some(&b"value"[..]));
    assert!(matches!(client.get(b"a"), Err(RpError::NoServer { .. })));
    assert!(matches!(ask(&mut other, offer()), Answer::Failed(_)), "it is no spare any more");
}

#[test]
fn a_record_outside_of_the_range_undoes_a_split() {
    let spare = start(1, Role::Spare, 20, &[]);
    let mut link = offered(&spare.0);
    let records = vec![(b"a".to_vec(), Vec::new())];
    assert!(matches!(ask(&mut link, Request::SplitRecords(records)), Answer::Failed(_)));
    assert_eq!(spare.0.status().condition, Condition::Spare);
    assert_eq!(ask(&mut link, Request::SplitCommit(SPLIT)), Answer::NotTaken);
}

#[test]
fn a_server_that_falls_silent_in_a_split_holds_up_nothing_for_long() {
    let spare = start(1, Role::Spare, 20, &[]);
    let link = offered(&spare.0);
    spare.0.quiesce().unwrap();
    assert_eq!(spare.0.status().range, None);
    drop(link);
    let stream = TcpStream::connect(spare.0.address());
    assert!(stream.is_ok(), "it still serves");
}
