//! Protects datagrams: who may command, who may read, and who answered.
//!
//! ```text
//! command           version 1 | kind 1 | salt 32 | sealed( body | signature 64 ) | tag 16
//! acknowledgement   version 1 | kind 1 | node 16 | salt 32 | sealed( body ) | tag 16
//! ```
//!
//! A command is signed by the controller, so that a node, which has the key of the group, cannot
//! give commands to others. The signature covers the group as well: a command of one cluster is
//! none of another, even if both have one controller. An acknowledgement is sealed with the key of
//! its node, which no other node has.
//!
//! A key never sees a nonce twice: each datagram has a key of its own, derived from the key of the
//! group or node and a random salt of 256 bits, and seals one message under number 0. Two salts are
//! equal by chance once in 2^128 datagrams.
//!
//! What is replayed opens again. Epochs and runs make it harmless (`node.rs`, `client.rs`).

use strongroom_base::Entropy;
use strongroom_base::entropy::random_array;
use strongroom_base::keys::derive_object_key;
use strongroom_base::seal::{AuthorityKey, AuthorityPublicKey, SIGNATURE_BYTES, SealKey};
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::format::FormatError;
use crate::message::{Acknowledgement, Command, NodeId};

/// Bytes of a datagram at most: it fits into one packet of every network.
pub const DATAGRAM_BYTES_MAX: usize = 1_200;

const VERSION: u8 = 1;
const KIND_COMMAND: u8 = 1;
const KIND_ACKNOWLEDGEMENT: u8 = 2;
const SALT_BYTES: usize = 32;
const COMMAND_HEAD_BYTES: usize = 2 + SALT_BYTES;
const ACKNOWLEDGEMENT_HEAD_BYTES: usize = 2 + 16 + SALT_BYTES;

/// Derivation contexts, frozen.
mod context {
    pub const COMMAND: &str = "strongroom v0 key of a cluster command";
    pub const ACKNOWLEDGEMENT: &str = "strongroom v0 key of a cluster acknowledgement";
    pub const GROUP: &str = "strongroom v0 name of a cluster group";
    pub const SIGNATURE: &str = "strongroom v0 cluster command";
}

/// Why a datagram is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DatagramError {
    /// It is of another kind or version, or longer than datagrams are.
    #[error("a datagram is none of this version of the cluster's protocol")]
    Foreign,
    /// Its node is not in the cluster file.
    #[error("node {0} is not in the cluster file: add it, or stop its agent")]
    UnknownNode(NodeId),
    /// It does not open with the key of its group or node.
    #[error("a datagram does not open: its sender has another key, or it was changed on the way")]
    Sealed,
    /// The controller did not sign it.
    #[error("a command is not signed by the controller of this cluster")]
    Unsigned,
    /// It is authentic, and does not follow the format.
    #[error(transparent)]
    Format(#[from] FormatError),
}

/// The key that all nodes of a cluster and its controller have. It hides commands from others.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct GroupKey(pub [u8; 32]);

/// The key that one node and the controller have. It hides and authenticates what the node says.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct NodeKey(pub [u8; 32]);

/// Makes the datagram of a command, which the controller signs.
pub fn seal_command(
    command: &Command,
    controller: &AuthorityKey,
    group: &GroupKey,
    entropy: &dyn Entropy,
) -> Vec<u8> {
    let mut body = command.pack();
    let signature = controller.sign(context::SIGNATURE, &signed_bytes(group, &body));
    body.extend_from_slice(&signature);
    seal(&[VERSION, KIND_COMMAND], context::COMMAND, &group.0, &body, entropy)
}

/// Opens the datagram of a command, and verifies that the controller signed it.
///
/// # Errors
///
/// If it is of another kind, was sealed with another key, or is not signed.
pub fn open_command(
    datagram: &[u8],
    controller: &AuthorityPublicKey,
    group: &GroupKey,
) -> Result<Command, DatagramError> {
    let head = head_of(datagram, KIND_COMMAND, COMMAND_HEAD_BYTES)?;
    let mut sealed = datagram[head.len()..].to_vec();
    let opened = open(head, context::COMMAND, &group.0, &mut sealed)?;
    let body_bytes = opened.len().checked_sub(SIGNATURE_BYTES).ok_or(DatagramError::Unsigned)?;
    let (body, signature) = opened.split_at(body_bytes);
    if !controller.verifies(context::SIGNATURE, &signed_bytes(group, body), signature) {
        return Err(DatagramError::Unsigned);
    }
    Ok(Command::unpack(body)?)
}

/// Makes the datagram of an acknowledgement.
pub fn seal_acknowledgement(
    acknowledgement: &Acknowledgement,
    key: &NodeKey,
    entropy: &dyn Entropy,
) -> Vec<u8> {
    let mut head = vec![VERSION, KIND_ACKNOWLEDGEMENT];
    head.extend_from_slice(&acknowledgement.node.0);
    seal(&head, context::ACKNOWLEDGEMENT, &key.0, &acknowledgement.pack(), entropy)
}

/// Opens the datagram of an acknowledgement. `key_of` finds the key of a node.
///
/// # Errors
///
/// If it is of another kind, its node is unknown, or it was sealed with another key.
pub fn open_acknowledgement(
    datagram: &[u8],
    key_of: impl FnOnce(NodeId) -> Option<NodeKey>,
) -> Result<Acknowledgement, DatagramError> {
    let head = head_of(datagram, KIND_ACKNOWLEDGEMENT, ACKNOWLEDGEMENT_HEAD_BYTES)?;
    let node = head[2..].first_chunk().ok_or(DatagramError::Foreign)?;
    let node = NodeId(*node);
    let key = key_of(node).ok_or(DatagramError::UnknownNode(node))?;
    let mut sealed = datagram[head.len()..].to_vec();
    let body = open(head, context::ACKNOWLEDGEMENT, &key.0, &mut sealed)?;
    Ok(Acknowledgement::unpack(node, body)?)
}

/// What the controller signs: which group is meant, and the command.
fn signed_bytes(group: &GroupKey, body: &[u8]) -> Vec<u8> {
    let name = derive_object_key(context::GROUP, &group.0, &[]);
    [&name, body].concat()
}

fn head_of(datagram: &[u8], kind: u8, head_bytes: usize) -> Result<&[u8], DatagramError> {
    let is_ours = datagram.starts_with(&[VERSION, kind]) && datagram.len() <= DATAGRAM_BYTES_MAX;
    datagram.get(..head_bytes).filter(|_| is_ours).ok_or(DatagramError::Foreign)
}

fn seal(head: &[u8], context: &str, key: &[u8; 32], body: &[u8], entropy: &dyn Entropy) -> Vec<u8> {
    let salt: [u8; SALT_BYTES] = random_array(entropy);
    let head = [head, &salt].concat();
    let mut datagram = head.clone();
    datagram.extend_from_slice(body);
    let key = SealKey::new(&derive_object_key(context, key, &salt));
    key.seal_from(head.len(), 0, &head, &mut datagram);
    assert!(datagram.len() <= DATAGRAM_BYTES_MAX, "the limits of messages keep datagrams short");
    datagram
}

fn open<'s>(
    head: &[u8],
    context: &str,
    key: &[u8; 32],
    sealed: &'s mut [u8],
) -> Result<&'s [u8], DatagramError> {
    let salt = &head[head.len() - SALT_BYTES..];
    let key = SealKey::new(&derive_object_key(context, key, salt));
    let body = key.open(0, head, sealed).map_err(|_| DatagramError::Sealed)?;
    Ok(body)
}

#[cfg(test)]
mod tests;
