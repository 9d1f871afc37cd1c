//! What is known of trees, and of nodes of recipes, that a verb met before.
//!
//! Snapshots share most of their trees, so a verb that looks at all of them looks at each tree once
//! and remembers what it found. The memory for that is bounded: of those met last, at least
//! [`KEPT_MIN`] are remembered.

use std::collections::HashMap;

use strongroom_catalog::{ChunkRef, Recipe};

/// At least this many are remembered, at most twice as many. With a number for each that is 44 MiB.
const KEPT_MIN: usize = if cfg!(test) { 100 } else { 900_000 };

/// The identity of a tree or of a node of a recipe, wherever its chunks are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TreeKey([u8; 16]);

impl TreeKey {
    /// The key of a directory's tree.
    pub fn of_tree(tree: &Recipe) -> Self {
        Self::first_of(tree.digest())
    }

    /// The key of a node that is this many levels above the chunks of its stream.
    pub fn of_node(node: &ChunkRef, level: u8) -> Self {
        Self::first_of(Recipe { depth: level, refs: vec![*node] }.digest())
    }

    /// The key of the same tree in one place alone.
    pub fn at(self, path: &[u8]) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.0);
        hasher.update(path);
        Self::first_of(*hasher.finalize().as_bytes())
    }

    fn first_of(digest: [u8; 32]) -> Self {
        let mut first = [0; 16];
        first.copy_from_slice(&digest[..16]);
        Self(first)
    }
}

/// Remembers something of each tree.
#[derive(Debug)]
pub struct TreeMemo<V> {
    young: HashMap<TreeKey, V>,
    /// What was met before the young were; dropped when those are too many.
    old: HashMap<TreeKey, V>,
}

impl<V> Default for TreeMemo<V> {
    fn default() -> Self {
        Self { young: HashMap::new(), old: HashMap::new() }
    }
}

impl<V: Copy> TreeMemo<V> {
    /// What is remembered.
    pub fn get(&mut self, key: TreeKey) -> Option<V> {
        if let Some(value) = self.young.get(&key) {
            return Some(*value);
        }
        let value = self.old.remove(&key)?;
        self.insert(key, value);
        Some(value)
    }

    /// Remembers something, in the place of what was remembered.
    pub fn insert(&mut self, key: TreeKey, value: V) {
        if self.young.len() >= KEPT_MIN {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> TreeKey {
        TreeKey([0; 16]).at(&number.to_le_bytes())
    }

    #[test]
    fn what_was_met_last_is_remembered_and_the_rest_is_bounded() {
        let mut memo = TreeMemo::default();
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
        assert_ne!(TreeKey::of_node(&node, 1), TreeKey::of_node(&node, 2));
        assert_ne!(TreeKey::of_node(&node, 1), TreeKey::of_node(&node, 1).at(b"/a"));
    }
}
