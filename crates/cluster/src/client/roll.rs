//! Which nodes have said all that they have: each answer says how many of its kind there are.

use std::collections::{BTreeMap, BTreeSet};

use crate::message::{Acknowledgement, BucketNumber, NodeId, NodeTag};

/// What nodes have answered so far.
#[derive(Debug, Default)]
pub(super) struct Roll(BTreeMap<NodeId, Said>);

#[derive(Debug, Default)]
struct Said {
    /// How many buckets answer, as far as the node has said.
    buckets: u16,
    /// Those that have answered for good.
    heard: BTreeSet<BucketNumber>,
}

impl Roll {
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// A node has answered: for a bucket that will say no more, or for one that will.
    pub fn note(&mut self, answer: &Acknowledgement, is_final: bool) {
        let said = self.0.entry(answer.node).or_default();
        // Answers overtake each other, and buckets only join.
        said.buckets = said.buckets.max(answer.buckets);
        said.heard.extend(answer.bucket.filter(|_| is_final));
    }

    /// Whether all is heard of a node.
    pub fn is_complete(&self, node: NodeId) -> bool {
        self.0.get(&node).is_some_and(Said::is_complete)
    }

    /// Nodes that have answered, and have more to say.
    pub fn incomplete(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.0.iter().filter(|(_, said)| !said.is_complete()).map(|(node, _)| *node)
    }

    /// Nodes of which all is heard, as commands list them.
    pub fn answered(&self, is_wanted: impl Fn(NodeId) -> bool) -> Vec<NodeTag> {
        let complete = self.0.iter().filter(|(node, said)| said.is_complete() && is_wanted(**node));
        complete.map(|(node, _)| node.tag()).collect()
    }
}

impl Said {
    fn is_complete(&self) -> bool {
        self.heard.len() >= usize::from(self.buckets)
    }
}
