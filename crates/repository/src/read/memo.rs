//! What is known of trees, and of nodes of recipes, that a verb met before.
//!
//! Snapshots share most of their trees, so a verb that looks at all of them looks at each tree once
//! and remembers what it found. The memory for that is bounded.
//!
//! A tree and a node are different things, even if both are the same chunk: the top node of a large
//! directory's recipe leads to the chunks of its tree, and only the tree leads to what is below the
//! directory. So each has a type of its own, and a memory that is shared by both distinguishes them.

use std::collections::HashMap;
use std::hash::Hash;

use strongroom_base::regimes::{Regime, reached_if};
use strongroom_catalog::{ChunkRef, Recipe};

/// The identity of a directory's tree, wherever its chunks are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TreeKey([u8; 16]);

/// The identity of a node of a recipe, wherever its chunk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NodeKey([u8; 16]);

/// The identity of a tree or of a node, for a verb that goes into both once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PartKey {
    /// A directory's tree.
    Tree(TreeKey),
    /// A node of a recipe.
    Node(NodeKey),
}

/// What is remembered of trees.
pub type TreeMemo<V> = Memo<TreeKey, V>;
/// What is remembered of nodes.
pub type NodeMemo<V> = Memo<NodeKey, V>;
/// What is remembered of trees and nodes.
pub type PartMemo<V> = Memo<PartKey, V>;

impl TreeKey {
    /// The key of a directory's tree.
    pub fn of_tree(tree: &Recipe) -> Self {
        Self(first_of(tree.digest()))
    }

    /// The key of the same tree in one place alone.
    pub fn at(self, path: &[u8]) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.0);
        hasher.update(path);
        Self(first_of(*hasher.finalize().as_bytes()))
    }
}

impl NodeKey {
    /// The key of a node that is this many levels above the chunks of its stream.
    pub fn of_node(node: &ChunkRef, level: u8) -> Self {
        Self(first_of(Recipe { depth: level, refs: vec![*node] }.digest()))
    }
}

impl From<TreeKey> for PartKey {
    fn from(key: TreeKey) -> Self {
        Self::Tree(key)
    }
}

impl From<NodeKey> for PartKey {
    fn from(key: NodeKey) -> Self {
        Self::Node(key)
    }
}

fn first_of(digest: [u8; 32]) -> [u8; 16] {
    let mut first = [0; 16];
    first.copy_from_slice(&digest[..16]);
    first
}

/// Remembers something of each tree, of each node, or of both.
#[derive(Debug)]
pub struct Memo<K, V> {
    young: HashMap<K, V>,
    /// What was met before the young were; dropped when those are too many.
    old: HashMap<K, V>,
    kept_min: usize,
}

impl<K: Copy + Eq + Hash, V: Copy> Memo<K, V> {
    /// Nothing is remembered yet. Of those met last at least `kept_min` are, at most twice as many.
    pub fn new(kept_min: usize) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), kept_min }
    }

    /// What is remembered.
    pub fn get(&mut self, key: impl Into<K>) -> Option<V> {
        let key = key.into();
        if let Some(value) = self.young.get(&key) {
            return Some(*value);
        }
        let value = self.old.remove(&key)?;
        self.insert(key, value);
        Some(value)
    }

    /// Remembers something, in the place of what was remembered.
    pub fn insert(&mut self, key: impl Into<K>, value: V) {
        if self.young.len() >= self.kept_min {
            reached_if(!self.old.is_empty(), Regime::MemoForgot);
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key.into(), value);
    }
}

impl<K: Copy + Eq + Hash> Memo<K, ()> {
    /// Whether something was met before; from now on it was.
    pub fn was_met(&mut self, key: impl Into<K>) -> bool {
        let key = key.into();
        let was_met = self.get(key).is_some();
        self.insert(key, ());
        was_met
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> TreeKey {
        TreeKey([0; 16]).at(&number.to_le_bytes())
    }

    const KEPT_MIN: usize = 100;

    #[test]
    fn what_was_met_last_is_remembered_and_the_rest_is_bounded() {
        let mut memo = TreeMemo::new(KEPT_MIN);
        let asked = key(0);
        for number in 0..10 * KEPT_MIN as u64 {
            memo.insert(key(number), number);
            assert_eq!(memo.get(asked), Some(0), "it is asked for again and again");
            assert!(memo.young.len() + memo.old.len() <= 2 * KEPT_MIN);
            for known in number.saturating_sub(KEPT_MIN as u64 / 2)..number {
                assert_eq!(memo.get(key(known)), Some(known));
            }
        }
        assert_eq!(memo.get(key(1)), None);
    }

    #[test]
    fn a_node_has_a_key_for_each_level() {
        let node = ChunkRef::hole(5);
        assert_ne!(NodeKey::of_node(&node, 1), NodeKey::of_node(&node, 2));
    }

    #[test]
    fn kept_1_1_a_tree_and_the_node_above_its_chunks_are_met_apart() {
        let node = ChunkRef::hole(5);
        let tree = Recipe { depth: 1, refs: vec![node] };
        let mut met = PartMemo::new(KEPT_MIN);
        assert!(!met.was_met(NodeKey::of_node(&node, 1)));
        assert!(!met.was_met(TreeKey::of_tree(&tree)), "its only node was met, and not the tree");
        assert!(met.was_met(TreeKey::of_tree(&tree)) && met.was_met(NodeKey::of_node(&node, 1)));
    }
}
