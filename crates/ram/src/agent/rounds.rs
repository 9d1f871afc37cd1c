//! Rounds of a cluster on this node: what the state machine of each file asks for is carried out, and
//! what comes of it is reported back.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;

use strongroom_base::entropy::random_array;
use strongroom_base::{OsEntropy, Severity, SnapshotId};
use strongroom_bucket::ToProgram;
use strongroom_cluster::{
    BucketNumber, Description, Epoch, FileName, Node, NodeEffect, NodeInput, NodeOptions, Record,
    Verb, open_command, seal_acknowledgement,
};

use super::bucket::Work;
use super::{Agent, AgentError, bind_datagrams};
use crate::files::{NodeFile, replace};
use crate::keeper::BucketName;

/// An answer waits up to this long, so that not all nodes answer at once.
const ANSWER_SPREAD_MS: u32 = 20;
/// A program is stopped by a command no longer than this.
const STOPPED_MS_MAX: u32 = 60_000;

/// The rounds of all files.
pub struct Rounds {
    node: NodeFile,
    folder: PathBuf,
    socket: UdpSocket,
    files: BTreeMap<FileName, Node>,
    /// The newest epoch of each file in which it is evicted, and not stored.
    evictions: BTreeMap<FileName, Epoch>,
}

impl Rounds {
    /// Listens where the node's file says.
    pub fn open(node: NodeFile, folder: PathBuf) -> Result<Self, AgentError> {
        let socket = bind_datagrams(&node)?;
        let path = folder.clone();
        let failed =
            move |why: io::Error| AgentError::Record { path: path.clone(), why: why.to_string() };
        fs::create_dir_all(&folder).map_err(&failed)?;
        let mut rounds =
            Self { node, folder, socket, files: BTreeMap::new(), evictions: BTreeMap::new() };
        // What cannot be read is found out before programs connect.
        for entry in fs::read_dir(&rounds.folder).map_err(&failed)? {
            let name = entry.map_err(&failed)?.file_name();
            let name = name.to_str().and_then(|name| name.strip_suffix(".rounds"));
            if let Some(file) = name.and_then(|name| FileName::new(name).ok()) {
                rounds.file(&file)?;
            }
        }
        Ok(rounds)
    }

    /// Its socket.
    pub fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// How long nothing is due, at most `limit`.
    pub fn wait(&self, now_ms: u64, limit: Duration) -> Duration {
        let wake = self.files.values().filter_map(Node::wake_at_ms).min();
        let wait = wake.map_or(limit, |at| Duration::from_millis(at.saturating_sub(now_ms)));
        wait.min(limit)
    }

    fn record_path(&self, file: &FileName) -> PathBuf {
        self.folder.join(format!("{file}.rounds"))
    }

    /// The state machine of a file. A file that is heard of for the first time has one, too.
    fn file(&mut self, file: &FileName) -> Result<&mut Node, AgentError> {
        if !self.files.contains_key(file) {
            let path = self.record_path(file);
            let record = match fs::read(&path) {
                Ok(bytes) => Record::unpack(&bytes).map_err(|error| error.to_string()),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Record::default()),
                Err(error) => Err(error.to_string()),
            };
            // With a record that is lost, an old command could be carried out again.
            let record = record.map_err(|why| AgentError::Record { path, why })?;
            let options = NodeOptions {
                node: self.node.id,
                seed: u64::from_le_bytes(random_array(&OsEntropy)),
                answer_spread_ms: ANSWER_SPREAD_MS,
                deadline_ms_max: STOPPED_MS_MAX,
            };
            self.files.insert(file.clone(), Node::new(file.clone(), options, record));
        }
        Ok(self.files.get_mut(file).expect("it was made"))
    }
}

impl Agent {
    /// A datagram arrived, from whom ever.
    pub(super) fn receive(&mut self, datagram: &[u8], from: SocketAddr) {
        let now = self.now_ms();
        let Some(rounds) = &mut self.rounds else { return };
        let command = match open_command(datagram, &rounds.node.controller, &rounds.node.group) {
            Ok(command) => command,
            Err(error) => {
                let monitor = &self.keeper.monitor;
                return monitor.detail(&format!("a datagram from {from} is ignored: {error}"));
            }
        };
        if let Verb::Evict { .. } = command.verb {
            rounds.evictions.insert(command.file.clone(), command.epoch);
        }
        match rounds.file(&command.file) {
            Ok(node) => {
                let effects = node.receive(now, from, &command);
                self.carry_out(&command.file, effects);
            }
            Err(error) => self.say(Severity::Warning, &error.to_string()),
        }
    }

    /// The time has gone on.
    pub(super) fn tick_rounds(&mut self) {
        let now = self.now_ms();
        let Some(rounds) = &mut self.rounds else { return };
        let ticked: Vec<_> =
            rounds.files.iter_mut().map(|(file, node)| (file.clone(), node.tick(now))).collect();
        for (file, effects) in ticked {
            self.carry_out(&file, effects);
        }
    }

    /// Reports to the state machine of a bucket's file.
    fn report(&mut self, name: &BucketName, input: NodeInput) {
        let now = self.now_ms();
        let Some(rounds) = &mut self.rounds else { return };
        let Ok(file) = FileName::new(&name.file) else { return };
        match rounds.file(&file) {
            Ok(node) => {
                let effects = node.input(now, input);
                self.carry_out(&file, effects);
            }
            Err(error) => self.say(Severity::Warning, &error.to_string()),
        }
    }

    fn carry_out(&mut self, file: &FileName, effects: Vec<NodeEffect>) {
        let mut effects = VecDeque::from(effects);
        while let Some(effect) = effects.pop_front() {
            let Some(input) = self.effect(file, effect) else { continue };
            let now = self.now_ms();
            let node = self.rounds.as_mut().and_then(|rounds| rounds.files.get_mut(file));
            effects.extend(node.map(|node| node.input(now, input)).unwrap_or_default());
        }
    }

    /// Carries out one effect. What is known at once is returned.
    fn effect(&mut self, file: &FileName, effect: NodeEffect) -> Option<NodeInput> {
        let name =
            |bucket: BucketNumber| BucketName { file: file.as_str().to_owned(), number: bucket.0 };
        match effect {
            NodeEffect::Persist { number, record } => {
                let path = self.rounds.as_ref()?.record_path(file);
                return Some(match replace(&path, &record.pack()) {
                    Ok(()) => NodeInput::Persisted { number },
                    Err(error) => NodeInput::NotPersisted { number, reason: error.to_string() },
                });
            }
            NodeEffect::Quiesce { bucket, epoch } => {
                let name = name(bucket);
                if !self.buckets.contains_key(&name) {
                    let reason = "its program ended".to_owned();
                    return Some(NodeInput::Failed { bucket, epoch, reason });
                }
                let evicts = self.rounds.as_ref()?.evictions.get(file) == Some(&epoch);
                let work = if evicts { Work::HoldStill(epoch) } else { Work::Round(epoch) };
                self.enqueue(&name, work, false);
            }
            NodeEffect::Capture { bucket, epoch } => return self.capture(&name(bucket), epoch),
            NodeEffect::Resume { bucket } => self.let_go(&name(bucket)),
            NodeEffect::Drop { bucket, .. } => {
                if let Some(bucket) = self.buckets.get(&name(bucket)) {
                    bucket.give_up();
                }
            }
            // The job goes on by itself.
            NodeEffect::Store { .. } => {}
            NodeEffect::Compare { bucket, snapshot, .. } => {
                let name = name(bucket);
                let doing = self.buckets.get(&name).and_then(|bucket| bucket.round.as_ref());
                if let Some(job) = doing.map(|doing| doing.job) {
                    self.compare(&name, job, snapshot);
                }
            }
            NodeEffect::Free { bucket, epoch } => {
                let name = name(bucket);
                let here = self.buckets.get(&name);
                if here.is_none_or(|bucket| bucket.quiesced.is_none() || bucket.round.is_none()) {
                    let reason = "its program went on or ended: nothing was freed".to_owned();
                    return Some(NodeInput::Failed { bucket, epoch, reason });
                }
                self.free(&name);
            }
            NodeEffect::Load { bucket, epoch, snapshot, .. } => {
                let name = name(bucket);
                if !self.buckets.contains_key(&name) {
                    let reason = "no program on this node has registered it".to_owned();
                    return Some(NodeInput::Failed { bucket, epoch, reason });
                }
                self.enqueue(&name, Work::RoundLoad { epoch, snapshot }, false);
            }
            NodeEffect::Acknowledge { to, acknowledgement } => {
                let rounds = self.rounds.as_ref()?;
                let key = &rounds.node.key;
                let datagram = seal_acknowledgement(&acknowledgement, key, &OsEntropy);
                // What is lost is asked for again.
                let _ = rounds.socket.send_to(&datagram, to);
            }
        }
        None
    }

    /// All programs of the round hold still: what this bucket holds is captured. Shadows do not change
    /// any more, so their program can go on before they are read.
    fn capture(&mut self, name: &BucketName, epoch: Epoch) -> Option<NodeInput> {
        let bucket = self.buckets.get_mut(name)?;
        let about = bucket.about(name, &bucket.areas, Some(epoch), None);
        let doing = bucket.round.as_ref()?;
        doing.gate.open(about);
        doing.is_copy.then(|| captured(name, epoch, bucket.description()))
    }

    /// Lets the program of a bucket go on, or gives up to stop it.
    fn let_go(&mut self, name: &BucketName) {
        let Some(bucket) = self.buckets.get_mut(name) else { return };
        bucket.waiting.retain(|(work, _)| !matches!(work, Work::Round(_) | Work::HoldStill(_)));
        let Some(doing) = &bucket.round else { return };
        match doing.work {
            Work::Round(_) => {
                let is_reading = doing.is_copy && doing.gate.is_open() && !doing.is_captured;
                // Unless it was captured, the job ends by this.
                doing.gate.close();
                bucket.resume(is_reading);
            }
            Work::HoldStill(_) => {
                let job = doing.job;
                self.ended(name, job, Err("it was let go".to_owned()));
            }
            _ => {}
        }
    }

    /// A bucket is there, or is another than it was.
    pub(super) fn attach(&mut self, name: &BucketName) {
        let Some(bucket) = self.buckets.get_mut(name) else { return };
        let (description, number) = (bucket.description(), BucketNumber(name.number));
        let was_attached = std::mem::replace(&mut bucket.is_attached, true);
        let input = match was_attached {
            true => NodeInput::Described { bucket: number, description },
            false => NodeInput::Attached { bucket: number, description },
        };
        self.report(name, input);
    }

    /// A bucket is gone.
    pub(super) fn detached(&mut self, name: &BucketName) {
        self.report(name, NodeInput::Detached { bucket: BucketNumber(name.number) });
    }

    /// The program of a bucket holds still.
    pub(super) fn round_quiesced(&mut self, name: &BucketName, epoch: Epoch) {
        let Some(bucket) = self.buckets.get(name) else { return };
        let (description, number) = (bucket.description(), BucketNumber(name.number));
        self.report(name, NodeInput::Quiesced { bucket: number, epoch, description });
    }

    /// What a bucket held is captured. Of a copy, the node knows it already, and the program hears that
    /// its shadows may change, by the question to which it made them.
    pub(super) fn round_captured(&mut self, name: &BucketName, epoch: Epoch, copy: Option<u64>) {
        let Some(bucket) = self.buckets.get(name) else { return };
        match copy {
            Some(epoch) => bucket.tell(&ToProgram::EpochCaptured { epoch }),
            None => self.report(name, captured(name, epoch, bucket.description())),
        }
    }

    /// A bucket was compared with what was stored of it.
    pub(super) fn round_compared(
        &mut self,
        name: &BucketName,
        epoch: Epoch,
        outcome: Result<bool, String>,
    ) {
        let bucket = BucketNumber(name.number);
        self.report(
            name,
            match outcome {
                Ok(is_equal) => NodeInput::Compared { bucket, epoch, is_equal },
                Err(reason) => NodeInput::Failed { bucket, epoch, reason },
            },
        );
    }

    /// What a round wanted of a bucket has ended.
    pub(super) fn round_ended(
        &mut self,
        name: &BucketName,
        work: &Work,
        stored: Option<SnapshotId>,
        outcome: Result<(), String>,
    ) {
        let bucket = BucketNumber(name.number);
        let (Work::Round(epoch) | Work::HoldStill(epoch) | Work::RoundLoad { epoch, .. }) = *work
        else {
            return;
        };
        let here = self.buckets.get_mut(name);
        let input = match (work, outcome, stored) {
            (_, Err(reason), _) => NodeInput::Failed { bucket, epoch, reason },
            (Work::Round(_), Ok(()), Some(snapshot)) => {
                NodeInput::Stored { bucket, epoch, snapshot }
            }
            (Work::HoldStill(_), Ok(()), _) => {
                if let Some(here) = here {
                    here.is_attached = false;
                }
                NodeInput::Freed { bucket, epoch }
            }
            (_, Ok(()), _) => {
                let Some(here) = here else { return };
                here.is_attached = true;
                let description = here.description();
                NodeInput::Loaded { bucket, epoch, description }
            }
        };
        self.report(name, input);
    }
}

fn captured(name: &BucketName, epoch: Epoch, description: Description) -> NodeInput {
    // The marks of a snapshot have the signatures of its pages; nothing is gained by their sum here.
    let root = [0; 4];
    NodeInput::Captured { bucket: BucketNumber(name.number), epoch, description, root }
}
