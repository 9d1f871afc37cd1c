//! A server and an agent that speak through `strongroom-bucket`: the agent is played by the test.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use strongroom_bucket::served::{Connection, Listener, Received};
use strongroom_bucket::{FromProgram, KeyRange, PROTOCOL, ToProgram};

use super::super::*;
use super::tree::copy_memory;
use super::{client, file};

/// A connection with a server, and what it registered.
struct Agent {
    connection: Connection,
    areas: Vec<OwnedFd>,
    range: Option<KeyRange>,
}

impl Agent {
    /// Lets a server in, and takes what it registers until it has callbacks.
    fn admit(listener: &Listener) -> Self {
        let connection = listener.accept(Some(Duration::from_secs(20))).unwrap();
        let connection = connection.expect("a server connects");
        let mut agent = Self { connection, areas: Vec::new(), range: None };
        let callbacks = agent.receive(|message| matches!(message, FromProgram::Callbacks { .. }));
        assert_eq!(callbacks, FromProgram::Callbacks { has_callbacks: true });
        assert_eq!(agent.areas.len(), 1);
        agent
    }

    /// Takes messages until one is as wanted.
    fn receive(&mut self, is_wanted: impl Fn(&FromProgram) -> bool) -> FromProgram {
        loop {
            let received = self.connection.receive(Some(Duration::from_secs(20))).unwrap();
            let Received::Message(message, fd) = received else {
                panic!("a message, and not {received:?}")
            };
            self.areas.extend(fd);
            match &message {
                FromProgram::Hello { file, bucket, .. } => {
                    assert_eq!((file.as_str(), *bucket), ("people", 0));
                    self.send(ToProgram::Welcome { protocol: PROTOCOL });
                }
                FromProgram::Region { request, area, .. } => {
                    assert_eq!(area, AREA);
                    self.send(ToProgram::Done { request: *request });
                }
                FromProgram::Range { range, .. } => self.range = Some(range.clone()),
                _ => {}
            }
            if is_wanted(&message) {
                return message;
            }
        }
    }

    fn send(&self, message: ToProgram) {
        self.connection.send(&message).unwrap();
    }

    fn quiesce(&mut self, epoch: u64) {
        self.send(ToProgram::Quiesce { epoch });
        let quiesced = self.receive(|message| matches!(message, FromProgram::Quiesced { .. }));
        assert_eq!(quiesced, FromProgram::Quiesced { epoch, is_copy: false, outcome: Ok(()) });
    }

    fn resume(&self, epoch: u64) {
        self.send(ToProgram::Resume { epoch, is_reading: false });
    }
}

#[test]
fn an_agent_stores_evicts_and_loads_a_bucket_through_the_library() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("agent");
    let listener = Listener::bind(&socket, 0o600).unwrap();
    let servers = file(0, 40);
    let server = servers[0].0.clone();
    let registered = std::thread::spawn(move || register(&server, Some(&socket), "people"));
    let mut agent = Agent::admit(&listener);
    registered.join().unwrap().unwrap();
    assert_eq!(agent.range, Some(KeyRange::whole()));

    let workload = Workload::new(51, 300, 900);
    workload.fill(&mut client(&servers)).unwrap();
    agent.quiesce(1);
    assert_eq!(servers[0].0.status().condition, Condition::Quiesced);
    let copy = Area::create(40).unwrap();
    copy_memory(agent.areas[0].as_fd(), copy.as_fd());
    agent.resume(1);
    assert_eq!(workload.check(&mut client(&servers)).unwrap().equal, 300);

    agent.quiesce(2);
    agent.send(ToProgram::Evict { epoch: 2 });
    let evicted = agent.receive(|message| matches!(message, FromProgram::Evicted { .. }));
    assert_eq!(evicted, FromProgram::Evicted { epoch: 2, outcome: Ok(()) });
    assert_eq!(servers[0].0.status().condition, Condition::Evicted);
    assert_eq!(agent.areas.len(), 1, "its new memory is registered only afterwards");
    agent.receive(|message| matches!(message, FromProgram::Region { .. }));

    agent.range = None;
    agent.quiesce(3);
    copy_memory(copy.as_fd(), agent.areas[1].as_fd());
    agent.send(ToProgram::Load { epoch: 3, keys: None });
    let loaded = agent.receive(|message| matches!(message, FromProgram::Loaded { .. }));
    assert_eq!(loaded, FromProgram::Loaded { epoch: 3, outcome: Ok(()) });
    assert_eq!(agent.range, Some(KeyRange::whole()), "it comes before the answer");
    agent.resume(3);
    let checked = workload.check(&mut client(&servers)).unwrap();
    assert_eq!(checked, Checked { equal: 300, ..Checked::default() });

    // An agent that dies lets its servers go on, and the next one learns all that is registered.
    agent.quiesce(4);
    drop(agent);
    let mut agent = Agent::admit(&listener);
    assert_eq!(agent.range, Some(KeyRange::whole()));
    assert_eq!(workload.check(&mut client(&servers)).unwrap().equal, 300);
    agent.quiesce(1);
    agent.resume(1);
}
