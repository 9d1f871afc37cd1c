//! The files of a cluster: one for its controller, one for each node. Each has secrets, so it is for
//! its owner alone. Of the node's file, the controller has all but its place on that node.

use std::fs::{self, File};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use strongroom_base::Entropy;
use strongroom_base::entropy::random_array;
use strongroom_base::seal::{AuthorityKey, AuthorityPublicKey};
use strongroom_cluster::{GroupKey, NodeId, NodeKey};

use crate::hex::{hex, unhex_array};

/// The name of the controller's file in the folder of a cluster.
const CONTROLLER_NAME: &str = "controller.json";

/// Why the files of a cluster are of no use.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// A file cannot be read or written.
    #[error("cannot use {}: {error}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Others can read its secrets.
    #[error("{} can be read by other users, and has secrets", .0.display())]
    Open(PathBuf),
    /// It is no such file.
    #[error("{} is no file of a cluster: {why}", .path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// What is wrong in it.
        why: String,
    },
    /// No node hears a group of another family.
    #[error("the group {group} and the address {address} of node \"{name}\" are not of one family")]
    Families {
        /// The group.
        group: SocketAddr,
        /// What people call the node.
        name: String,
        /// Where its agent listens.
        address: SocketAddr,
    },
    /// Two nodes cannot have one name.
    #[error("the cluster in {} has a node \"{name}\"", .folder.display())]
    Taken {
        /// The folder of the cluster.
        folder: PathBuf,
        /// The name.
        name: String,
    },
}

/// What the controller knows.
pub struct ControllerFile {
    /// Where it is.
    pub path: PathBuf,
    /// Signs commands.
    pub controller: AuthorityKey,
    /// Hides commands.
    pub group: GroupKey,
    /// A group that all nodes listen to, instead of commands to each of them.
    pub multicast: Option<SocketAddr>,
    /// The nodes.
    pub nodes: Vec<ClusterNode>,
}

/// A node, as the controller knows it.
#[derive(Clone)]
pub struct ClusterNode {
    /// What people call it.
    pub name: String,
    /// What messages call it.
    pub id: NodeId,
    /// Hides what it says.
    pub key: NodeKey,
    /// Where its agent listens.
    pub address: SocketAddr,
}

/// What a node knows.
pub struct NodeFile {
    /// What people call it.
    pub name: String,
    /// What messages call it.
    pub id: NodeId,
    /// Hides what it says.
    pub key: NodeKey,
    /// Where its agent listens.
    pub address: SocketAddr,
    /// A group that it listens to as well.
    pub multicast: Option<SocketAddr>,
    /// Hides commands.
    pub group: GroupKey,
    /// Whose commands are carried out.
    pub controller: AuthorityPublicKey,
}

#[derive(Serialize, Deserialize)]
struct ControllerText {
    controller: String,
    group: String,
    multicast: Option<SocketAddr>,
    nodes: Vec<NodeText>,
}

#[derive(Serialize, Deserialize)]
struct NodeText {
    name: String,
    id: String,
    key: String,
    address: SocketAddr,
}

#[derive(Serialize, Deserialize)]
struct NodeFileText {
    #[serde(flatten)]
    node: NodeText,
    multicast: Option<SocketAddr>,
    group: String,
    controller: String,
}

impl ControllerFile {
    /// Reads it from the folder of a cluster; `None` if there is none.
    ///
    /// # Errors
    ///
    /// It cannot be read, others can read it, or it is no such file.
    pub fn read(folder: &Path) -> Result<Option<Self>, FilesError> {
        let path = folder.join(CONTROLLER_NAME);
        if fs::symlink_metadata(&path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            return Ok(None);
        }
        let text: ControllerText = read(&path)?;
        let wrong = |what: &str| wrong(&path, what);
        let nodes = text.nodes.iter().map(|node| node.node().ok_or_else(|| wrong("a node")));
        Ok(Some(Self {
            controller: AuthorityKey::new(
                unhex_array(&text.controller).ok_or_else(|| wrong("its key"))?,
            ),
            group: GroupKey(unhex_array(&text.group).ok_or_else(|| wrong("the key of its group"))?),
            multicast: text.multicast,
            nodes: nodes.collect::<Result<_, _>>()?,
            path,
        }))
    }

    /// Adds nodes to the cluster in a folder, and makes both if they are not there: writes a file for
    /// each node, `NAME.json`, and then the controller's.
    ///
    /// # Errors
    ///
    /// A node of that name exists, a node has not the family of the group, or a file cannot be written.
    pub fn add(
        folder: &Path,
        nodes: &[(String, SocketAddr)],
        multicast: Option<SocketAddr>,
        entropy: &dyn Entropy,
    ) -> Result<Vec<PathBuf>, FilesError> {
        let path = folder.join(CONTROLLER_NAME);
        let mut text: ControllerText = match Self::read(folder)? {
            Some(_) => read(&path)?,
            None => ControllerText {
                controller: hex(&random_array::<32>(entropy)),
                group: hex(&random_array::<32>(entropy)),
                multicast: None,
                nodes: Vec::new(),
            },
        };
        text.multicast = multicast.or(text.multicast);
        let known = text.nodes.iter().map(|node| (&node.name, node.address));
        check_families(text.multicast, known.chain(nodes.iter().map(|(name, at)| (name, *at))))?;
        let secret = unhex_array(&text.controller).ok_or_else(|| wrong(&path, "its key"))?;
        let mut written = Vec::new();
        for (name, address) in nodes {
            if text.nodes.iter().any(|node| node.name == *name) {
                let (folder, name) = (folder.to_owned(), name.clone());
                return Err(FilesError::Taken { folder, name });
            }
            let (id, key) = (hex(&random_array::<16>(entropy)), hex(&random_array::<32>(entropy)));
            let (name, address) = (name.clone(), *address);
            let node =
                || NodeText { name: name.clone(), id: id.clone(), key: key.clone(), address };
            let file = NodeFileText {
                node: node(),
                multicast: text.multicast,
                group: text.group.clone(),
                controller: hex(&AuthorityKey::new(secret).public().0),
            };
            let path = folder.join(format!("{name}.json"));
            write(&path, &file)?;
            written.push(path);
            text.nodes.push(node());
        }
        write(&path, &text)?;
        Ok(written)
    }
}

impl NodeFile {
    /// Reads it.
    ///
    /// # Errors
    ///
    /// It cannot be read, others can read it, or it is no such file.
    pub fn read(path: &Path) -> Result<Self, FilesError> {
        let text: NodeFileText = read(path)?;
        let wrong = |what: &str| wrong(path, what);
        let ClusterNode { name, id, key, address } =
            text.node.node().ok_or_else(|| wrong("the node"))?;
        let group =
            GroupKey(unhex_array(&text.group).ok_or_else(|| wrong("the key of its group"))?);
        let controller =
            unhex_array(&text.controller).ok_or_else(|| wrong("the controller's key"))?;
        let controller = AuthorityPublicKey(controller);
        Ok(Self { name, id, key, address, multicast: text.multicast, group, controller })
    }
}

impl NodeText {
    fn node(&self) -> Option<ClusterNode> {
        let (id, key) = (NodeId(unhex_array(&self.id)?), NodeKey(unhex_array(&self.key)?));
        Some(ClusterNode { name: self.name.clone(), id, key, address: self.address })
    }
}

/// Refuses a group that some node cannot hear: one of IPv4 for an address of IPv6, or the reverse.
fn check_families<'n>(
    group: Option<SocketAddr>,
    nodes: impl IntoIterator<Item = (&'n String, SocketAddr)>,
) -> Result<(), FilesError> {
    let Some(group) = group else { return Ok(()) };
    let unfit = nodes.into_iter().find(|(_, address)| address.is_ipv4() != group.is_ipv4());
    let unfit = unfit.map(|(name, address)| (name.clone(), address));
    unfit.map_or(Ok(()), |(name, address)| Err(FilesError::Families { group, name, address }))
}

fn wrong(path: &Path, what: &str) -> FilesError {
    FilesError::Form { path: path.to_owned(), why: format!("{what} is not as it is written") }
}

fn read<T: for<'t> Deserialize<'t>>(path: &Path) -> Result<T, FilesError> {
    let io = |error| FilesError::Io { path: path.to_owned(), error };
    let file = File::open(path).map_err(io)?;
    if file.metadata().map_err(io)?.permissions().mode() & 0o077 != 0 {
        return Err(FilesError::Open(path.to_owned()));
    }
    let bytes = io::read_to_string(file).map_err(io)?;
    serde_json::from_str(&bytes)
        .map_err(|error| FilesError::Form { path: path.to_owned(), why: error.to_string() })
}

fn write(path: &Path, value: &impl Serialize) -> Result<(), FilesError> {
    let mut bytes = serde_json::to_vec_pretty(value).expect("it consists of texts and numbers");
    bytes.push(b'\n');
    replace(path, &bytes).map_err(|error| FilesError::Io { path: path.to_owned(), error })
}

/// Replaces a file that is for its owner alone: after a crash it is what it was or what it is to be.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder)?;
    let beside = path.with_extension(format!("new-{}", std::process::id()));
    let _ = fs::remove_file(&beside);
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&beside)?;
    let written = file
        .write_all(bytes)
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&beside, path))
        .and_then(|()| File::open(folder)?.sync_all());
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written
}

#[cfg(test)]
mod tests;
