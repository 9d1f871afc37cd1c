//! Rounds of a cluster on this node: what the state machine of each file asks for is carried out, and
//! what comes of it is reported back.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use strongroom_base::entropy::random_array;
use strongroom_base::{OsEntropy, Severity, SnapshotId};
use strongroom_cluster::{
    Acknowledgement, BucketNumber, Command, Description, Epoch, FileName, Node, NodeEffect,
    NodeInput, NodeOptions, Record, seal_acknowledgement,
};

use super::doing::Work;
use super::listening::bind_datagrams;
use super::torn::Torn;
use super::{Agent, AgentError};
use crate::files::NodeFile;
use crate::keeper::BucketName;

/// An answer waits up to this long, so that not all nodes answer at once.
const ANSWER_SPREAD_MS: u32 = 20;
/// A program is stopped by a command no longer than this.
const STOPPED_MS_MAX: u32 = 60_000;

/// The rounds of all files.
pub struct Rounds {
    node: Arc<NodeFile>,
    folder: PathBuf,
    socket: UdpSocket,
    files: BTreeMap<FileName, Node>,
    /// What is reported while effects are carried out: they come first.
    inputs: VecDeque<(FileName, NodeInput)>,
    is_carrying_out: bool,
}

impl Rounds {
    /// Listens where the node's file says.
    pub fn open(node: NodeFile, folder: PathBuf) -> Result<Self, AgentError> {
        let socket = bind_datagrams(&node)?;
        let path = folder.clone();
        let failed =
            move |why: io::Error| AgentError::Record { path: path.clone(), why: why.to_string() };
        fs::create_dir_all(&folder).map_err(&failed)?;
        let mut rounds = Self {
            node: Arc::new(node),
            folder,
            socket,
            files: BTreeMap::new(),
            inputs: VecDeque::new(),
            is_carrying_out: false,
        };
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

    /// The file of the node.
    pub fn node(&self) -> &Arc<NodeFile> {
        &self.node
    }

    /// How long nothing is due, at most `limit`.
    pub fn wait(&self, now_ms: u64, limit: Duration) -> Duration {
        let wake = self.files.values().filter_map(Node::wake_at_ms).min();
        let wait = wake.map_or(limit, |at| Duration::from_millis(at.saturating_sub(now_ms)));
        wait.min(limit)
    }

    /// Whether the present round of a file is this one, and evicts.
    pub fn is_evicting(&self, file: &FileName, epoch: Epoch) -> bool {
        self.files.get(file).is_some_and(|node| node.is_evicting(epoch))
    }

    /// Sends an acknowledgement. One that is lost is asked for again.
    pub fn answer(&self, to: SocketAddr, acknowledgement: &Acknowledgement) {
        let datagram = seal_acknowledgement(acknowledgement, &self.node.key, &OsEntropy);
        let _ = self.socket.send_to(&datagram, to);
    }

    /// What it remembers of a file is here.
    pub fn record_path(&self, file: &FileName) -> PathBuf {
        self.folder.join(format!("{file}.rounds"))
    }

    /// What it remembers is here.
    pub fn folder(&self) -> &Path {
        &self.folder
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
    /// A command arrived, whose signature is that of the controller. It may have been recorded.
    pub(super) fn receive(&mut self, command: &Command, from: SocketAddr) {
        let now = self.now_ms();
        let Some(rounds) = &mut self.rounds else { return };
        match rounds.file(&command.file) {
            Ok(node) => {
                let effects = node.receive(now, from, command);
                self.carry_out(&command.file, effects);
            }
            Err(error) => self.say_of_programs(Severity::Warning, &error.to_string()),
        }
    }

    /// The time has gone on.
    pub(super) fn tick_rounds(&mut self) {
        let now = self.now_ms();
        let Some(rounds) = &mut self.rounds else { return };
        let due = |node: &Node| node.wake_at_ms().is_some_and(|at| at <= now);
        let due = rounds.files.iter_mut().filter(|(_, node)| due(node));
        let ticked: Vec<_> = due.map(|(file, node)| (file.clone(), node.tick(now))).collect();
        for (file, effects) in ticked {
            self.carry_out(&file, effects);
        }
    }

    /// Reports to the state machine of a bucket's file.
    fn report(&mut self, name: &BucketName, input: NodeInput) {
        let Some(rounds) = &mut self.rounds else { return };
        let Ok(file) = FileName::new(&name.file) else { return };
        rounds.inputs.push_back((file.clone(), input));
        if !rounds.is_carrying_out {
            self.carry_out(&file, Vec::new());
        }
    }

    /// Carries out effects in their order, and then what is reported meanwhile.
    fn carry_out(&mut self, file: &FileName, effects: Vec<NodeEffect>) {
        let Some(rounds) = &mut self.rounds else { return };
        rounds.is_carrying_out = true;
        let mut todo: VecDeque<_> =
            effects.into_iter().map(|effect| (file.clone(), effect)).collect();
        loop {
            while let Some((file, effect)) = todo.pop_front() {
                let input = self.effect(&file, effect);
                if let (Some(input), Some(rounds)) = (input, &mut self.rounds) {
                    rounds.inputs.push_back((file, input));
                }
            }
            let now = self.now_ms();
            let Some(rounds) = &mut self.rounds else { return };
            let Some((file, input)) = rounds.inputs.pop_front() else { break };
            match rounds.file(&file) {
                Ok(node) => {
                    let effects = node.input(now, input);
                    todo.extend(effects.into_iter().map(|effect| (file.clone(), effect)));
                }
                Err(error) => self.say_of_programs(Severity::Warning, &error.to_string()),
            }
        }
        if let Some(rounds) = &mut self.rounds {
            rounds.is_carrying_out = false;
            // Programs may name any number of files, one after the other.
            rounds.files.retain(|_, node| !node.is_unused());
        }
    }

    /// What is written down of a load that did not end.
    pub(super) fn torn(&self, name: &BucketName) -> Torn {
        Torn::read(self.rounds.as_ref().map(Rounds::folder), name)
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

    /// What a bucket held is captured.
    pub(super) fn round_captured(&mut self, name: &BucketName, epoch: Epoch) {
        let Some(bucket) = self.buckets.get(name) else { return };
        self.report(name, captured(name, epoch, bucket.description()));
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

/// What is said of a bucket that is captured.
pub(super) fn captured(name: &BucketName, epoch: Epoch, description: Description) -> NodeInput {
    NodeInput::Captured { bucket: BucketNumber(name.number), epoch, description }
}
