//! The objects, and the operations that were sent and may be done at any time later.
//!
//! It keeps what `docs/concurrency.md` relies on, and nothing else: a name is created exclusively,
//! and the content of an object does not change.

use std::collections::BTreeMap;
use std::sync::Arc;

use strongroom_backend::ObjectName;
use strongroom_testkit::Random;

/// An object's bytes.
pub type Bytes = Arc<[u8]>;

/// What changes the store.
#[derive(Debug, Clone)]
pub enum Operation {
    /// Create an object, unless its name is taken.
    Create(ObjectName, Bytes),
    /// Put the bytes that an object had in its place.
    Replace(ObjectName, Bytes),
    /// Remove an object.
    Remove(ObjectName),
}

/// What became of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It was done.
    Done,
    /// The name is taken by other bytes.
    Taken,
    /// There is no such object.
    Missing,
}

/// What happens to an operation that is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is done and answered.
    Answered,
    /// It is done and answered, and once more at some time later.
    AnsweredAndRepeated,
    /// It is done; the answer is lost.
    Unanswered,
    /// The answer is lost, and it is done at some time later.
    Late,
    /// It is lost on the way.
    Lost,
}

/// All objects, and what may still be done.
#[derive(Debug, Clone, Default)]
pub struct Store {
    /// What exists.
    pub objects: BTreeMap<ObjectName, Bytes>,
    /// Sent, and done at some time later, in any order.
    pub pending: Vec<Operation>,
}

impl Operation {
    /// The object.
    pub fn name(&self) -> &ObjectName {
        match self {
            Self::Create(name, _) | Self::Replace(name, _) | Self::Remove(name) => name,
        }
    }

    /// What it does.
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Create(..) => "create",
            Self::Replace(..) => "replace",
            Self::Remove(..) => "remove",
        }
    }
}

impl Store {
    /// Sends an operation. Without an effect, no answer comes.
    pub fn send(&mut self, operation: Operation, fate: Fate) -> Option<Effect> {
        match fate {
            Fate::Answered => Some(self.apply(operation)),
            Fate::AnsweredAndRepeated => {
                self.pending.push(operation.clone());
                Some(self.apply(operation))
            }
            Fate::Unanswered => {
                self.apply(operation);
                None
            }
            Fate::Late => {
                self.pending.push(operation);
                None
            }
            Fate::Lost => None,
        }
    }

    /// Does one of the pending operations.
    pub fn land_one(&mut self, random: &mut Random) -> Option<(Operation, Effect)> {
        if self.pending.is_empty() {
            return None;
        }
        let place = random.below(self.pending.len() as u64) as usize;
        let operation = self.pending.swap_remove(place);
        let effect = self.apply(operation.clone());
        Some((operation, effect))
    }

    /// What is in a folder, sorted by name.
    pub fn folder(&self, folder: &str) -> BTreeMap<ObjectName, u64> {
        let inside = self.objects.iter().filter(|(name, _)| name.folder() == folder);
        inside.map(|(name, bytes)| (name.clone(), bytes.len() as u64)).collect()
    }

    fn apply(&mut self, operation: Operation) -> Effect {
        match operation {
            Operation::Create(name, bytes) => match self.objects.get(&name) {
                Some(found) if *found == bytes => Effect::Done,
                Some(_) => Effect::Taken,
                None => {
                    self.objects.insert(name, bytes);
                    Effect::Done
                }
            },
            Operation::Replace(name, bytes) => {
                self.objects.insert(name, bytes);
                Effect::Done
            }
            Operation::Remove(name) => match self.objects.remove(&name) {
                Some(_) => Effect::Done,
                None => Effect::Missing,
            },
        }
    }
}
