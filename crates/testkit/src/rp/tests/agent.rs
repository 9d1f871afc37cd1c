//! Servers and their agent: what it learns, and buckets that are stored, evicted and loaded.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use strongroom_base::Stopwatch;
use strongroom_bucket::KeyRange;

use super::super::*;
use super::tree::copy_memory;
use super::{PATIENCE, Running, client, file, fill_in_order, start};

/// An agent that copies memory.
#[derive(Default)]
struct Copier(Mutex<Known>);

#[derive(Default)]
struct Known {
    areas: Vec<OwnedFd>,
    range: Option<(KeyRange, u64)>,
}

impl Registered for Copier {
    fn region(&self, area: BorrowedFd<'_>, _bytes: u64) -> Result<(), String> {
        self.0.lock().unwrap().areas.push(area.try_clone_to_owned().unwrap());
        Ok(())
    }

    fn range(&self, range: &KeyRange, split_version: u64) -> Result<(), String> {
        self.0.lock().unwrap().range = Some((range.clone(), split_version));
        Ok(())
    }
}

impl Copier {
    fn of(server: &Running) -> Arc<Self> {
        let agent = Arc::new(Self::default());
        server.0.register(agent.clone()).unwrap();
        agent
    }

    fn range(&self) -> Option<(KeyRange, u64)> {
        self.0.lock().unwrap().range.clone()
    }

    /// A copy of the memory; the server is quiesced.
    fn store(&self) -> Area {
        let known = self.0.lock().unwrap();
        let source = known.areas.last().unwrap();
        let pages = rustix::fs::fstat(source).unwrap().st_size as u64 / PAGE_BYTES as u64;
        let copy = Area::create(pages as u32).unwrap();
        copy_memory(source.as_fd(), copy.as_fd());
        copy
    }

    /// Fills the memory; the server is quiesced.
    fn load(&self, copy: &Area) {
        copy_memory(copy.as_fd(), self.0.lock().unwrap().areas.last().unwrap().as_fd());
    }

    fn wait_for_areas(&self, count: usize) {
        let waited = Stopwatch::start();
        while self.0.lock().unwrap().areas.len() < count {
            assert!(waited.elapsed() < PATIENCE, "the server registers its new memory");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn the_agent_knows_each_range_once_the_server_is_quiesced() {
    let servers = file(2, 24);
    let agents: Vec<Arc<Copier>> = servers.iter().map(Copier::of).collect();
    assert_eq!(agents[0].range(), Some((KeyRange::whole(), 0)));
    assert_eq!(agents[1].range(), None);
    assert!(Workload::new(31, 900, 600).fill(&mut client(&servers)).is_ok());
    for (server, agent) in servers.iter().zip(&agents) {
        server.0.quiesce().unwrap();
        let status = server.0.status();
        let range = status.range.map(|range| (range, status.split_version));
        assert_eq!(agent.range(), range);
        server.0.resume();
    }
}

#[test]
fn a_quiesced_server_answers_nothing_and_its_clients_wait() {
    let servers = file(0, 24);
    let mut waiting = client(&servers);
    waiting.put(b"key", b"before").unwrap();
    let server = servers[0].0.clone();
    server.quiesce().unwrap();
    server.quiesce().unwrap();
    let mut hurried = Client::new(vec![server.address()], Duration::ZERO);
    assert!(matches!(hurried.get(b"key"), Err(RpError::Busy { .. })));
    let put = std::thread::spawn(move || waiting.put(b"key", b"after").map(|()| waiting));
    std::thread::sleep(Duration::from_millis(1300));
    assert!(!put.is_finished());
    server.resume();
    let mut waiting = put.join().unwrap().unwrap();
    assert_eq!(waiting.get(b"key").unwrap().as_deref(), Some(&b"after"[..]));
}

#[test]
fn what_was_stored_is_loaded_on_spares_and_the_clients_find_it() {
    let servers = file(2, 40);
    let agents: Vec<Arc<Copier>> = servers.iter().map(Copier::of).collect();
    let mut workload = Workload::new(32, 1200, 900);
    let mut old = client(&servers);
    fill_in_order(&mut old, &workload);
    let stored = workload.clone();

    let quiesced = servers.iter().map(|server| server.0.quiesce());
    quiesced.for_each(|quiesced| quiesced.unwrap());
    let copies: Vec<Area> = agents.iter().map(|agent| agent.store()).collect();
    servers.iter().for_each(|server| server.0.resume());
    workload.update(&mut old, 30).unwrap();
    assert!(!stored.check(&mut old).unwrap().is_equal());

    // Two are evicted, and all is loaded: one where it was, two on other servers.
    for server in &servers[1..] {
        server.0.quiesce().unwrap();
        server.0.evict().unwrap();
        assert_eq!(server.0.status().condition, Condition::Evicted);
    }
    assert!(matches!(stored.check(&mut old), Err(RpError::NoServer { .. })));
    let spares = [start(1, Role::Spare, 40, &[]), start(2, Role::Spare, 40, &[])];
    let others: Vec<Arc<Copier>> = spares.iter().map(Copier::of).collect();
    let targets = [&servers[0], &spares[0], &spares[1]];
    for (index, server) in targets.iter().enumerate() {
        server.0.quiesce().unwrap();
        let agent = if index == 0 { &agents[0] } else { &others[index - 1] };
        agent.load(&copies[index]);
        server.0.loaded().unwrap();
        assert_eq!(agent.range().map(|(range, _)| range), server.0.status().range);
        server.0.resume();
        assert_eq!(server.0.status().condition, Condition::Serving);
    }
    // An old client knows the evicted servers alone; it has to be given the new ones.
    let addresses = servers.iter().chain(&spares).map(|server| server.0.address()).collect();
    let checked = stored.check(&mut Client::new(addresses, PATIENCE)).unwrap();
    assert_eq!(checked, Checked { equal: 1200, ..Checked::default() });
}

#[test]
fn an_evicted_bucket_can_be_loaded_into_its_server_again() {
    let servers = file(0, 40);
    let agent = Copier::of(&servers[0]);
    let workload = Workload::new(33, 200, 900);
    let mut client = client(&servers);
    workload.fill(&mut client).unwrap();
    let server = &servers[0].0;
    server.quiesce().unwrap();
    let copy = agent.store();
    server.evict().unwrap();
    server.resume();
    assert!(matches!(client.get(b"key"), Err(RpError::NoServer { .. })));
    agent.wait_for_areas(2);
    server.quiesce().unwrap();
    agent.load(&copy);
    server.loaded().unwrap();
    server.resume();
    assert_eq!(workload.check(&mut client).unwrap().equal, 200);
    // It is changed as before.
    workload.fill(&mut client).unwrap();
}

#[test]
fn a_damaged_bucket_is_not_served() {
    let servers = file(0, 40);
    let agent = Copier::of(&servers[0]);
    let workload = Workload::new(34, 200, 900);
    workload.fill(&mut client(&servers)).unwrap();
    let server = &servers[0].0;
    server.quiesce().unwrap();
    let good = agent.store();
    let bad = Area::create(40).unwrap();
    copy_memory(good.as_fd(), bad.as_fd());
    rustix::io::pwrite(bad.as_fd(), &[0xff; 8], 24).unwrap();
    agent.load(&bad);
    let error = server.loaded().unwrap_err();
    assert!(error.contains("last snapshot"), "{error}");
    server.resume();
    assert_eq!(server.status().condition, Condition::Damaged);
    assert!(matches!(client(&servers).get(b"key"), Err(RpError::NoServer { .. })));
    server.quiesce().unwrap();
    agent.load(&good);
    // An agent that dies in a load says nothing of it: what is there is looked at in any case.
    server.resume();
    assert_eq!(workload.check(&mut client(&servers)).unwrap().equal, 200);
}

#[test]
fn quiesces_during_splits_lose_and_double_no_record() {
    let servers = file(4, 24);
    let workload = Workload::new(35, 1800, 700);
    let mut filling = client(&servers);
    let mut cuts = 0;
    std::thread::scope(|scope| {
        let fill = scope.spawn(|| workload.fill(&mut filling).unwrap());
        while !fill.is_finished() {
            let quiesced: Vec<bool> =
                servers.iter().map(|server| server.0.quiesce().is_ok()).collect();
            if quiesced.iter().all(|quiesced| *quiesced) {
                cuts += 1;
                let statuses: Vec<Status> =
                    servers.iter().map(|server| server.0.status()).collect();
                let mut ranges: Vec<&KeyRange> =
                    statuses.iter().filter_map(|status| status.range.as_ref()).collect();
                ranges.sort();
                assert_eq!(ranges[0].low, b"");
                for pair in ranges.windows(2) {
                    assert_eq!(pair[0].high.as_ref(), Some(&pair[1].low), "{statuses:?}");
                }
                assert_eq!(ranges.last().unwrap().high, None);
            }
            servers.iter().for_each(|server| server.0.resume());
            std::thread::sleep(Duration::from_millis(2));
        }
    });
    assert!(cuts > 5, "only {cuts} cuts");
    let checked = workload.check(&mut client(&servers)).unwrap();
    assert_eq!(checked, Checked { equal: 1800, ..Checked::default() });
}
