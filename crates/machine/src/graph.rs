//! QEMU's graph of nodes: which node reads and writes through which, and which jobs work on them. What
//! `query-block` says of a device leaves out the nodes that jobs have put above its disk.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::error::MachineError;
use crate::qmp::Qmp;

/// The command that shows it.
const COMMAND: &str = "x-debug-query-block-graph";
/// What it calls a node.
const NODE: &str = "block-driver";
/// What it calls a job.
const JOB: &str = "block-job";

/// The graph at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Graph {
    members: BTreeMap<u64, Member>,
    edges: Vec<Edge>,
}

/// A node, a job or a user of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Member {
    kind: String,
    name: String,
}

/// The parent uses the child.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Edge {
    parent: u64,
    child: u64,
    /// As what, such as `file` or `backing`.
    name: String,
}

impl Graph {
    /// Asks QEMU.
    ///
    /// # Errors
    ///
    /// It does not answer, or does not show it.
    pub fn ask(qmp: &Qmp) -> Result<Self, MachineError> {
        match qmp.execute(COMMAND, Value::Null) {
            Err(error) if error.is_refused() => Err(MachineError::Unable { missing: COMMAND }),
            answer => Ok(Self::of_answer(&answer?)),
        }
    }

    fn of_answer(answer: &Value) -> Self {
        let list = |name: &str| answer[name].as_array().into_iter().flatten();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let member = |member: &Value| {
            let found = Member { kind: text(&member["type"]), name: text(&member["name"]) };
            Some((member["id"].as_u64()?, found))
        };
        let edge = |edge: &Value| {
            let (parent, child) = (edge["parent"].as_u64()?, edge["child"].as_u64()?);
            Some(Edge { parent, child, name: text(&edge["name"]) })
        };
        Self {
            members: list("nodes").filter_map(member).collect(),
            edges: list("edges").filter_map(edge).collect(),
        }
    }

    /// The node that a node has as its file.
    pub fn file_of(&self, node: &str) -> Option<&str> {
        let id = self.node(node)?;
        let edge = self.edges.iter().find(|edge| edge.parent == id && edge.name == "file")?;
        self.members.get(&edge.child).map(|file| file.name.as_str())
    }

    /// A node that reads and writes through this one.
    pub fn node_above(&self, node: &str) -> Option<&str> {
        let id = self.node(node)?;
        let above = self.edges.iter().filter(|edge| edge.child == id);
        let above = above.filter_map(|edge| self.members.get(&edge.parent));
        above.filter(|member| member.kind == NODE).map(|member| member.name.as_str()).next()
    }

    /// A job that works on a node, or on one above or below it.
    pub fn job_on(&self, node: &str) -> Option<&str> {
        let id = self.node(node)?;
        let up = |edge: &Edge| (edge.child, edge.parent);
        let down = |edge: &Edge| (edge.parent, edge.child);
        let mut chain = self.reached(id, &up);
        chain.extend(self.reached(id, &down));
        let on_chain = self.edges.iter().filter(|edge| chain.contains(&edge.child));
        let users = on_chain.filter_map(|edge| self.members.get(&edge.parent));
        users.filter(|member| member.kind == JOB).map(|member| member.name.as_str()).next()
    }

    /// A node, and all nodes that are reached from it by edges in one direction.
    fn reached(&self, from: u64, direction: &dyn Fn(&Edge) -> (u64, u64)) -> BTreeSet<u64> {
        let is_node = |id: u64| self.members.get(&id).is_some_and(|member| member.kind == NODE);
        let (mut found, mut todo) = (BTreeSet::from([from]), vec![from]);
        while let Some(at) = todo.pop() {
            let next = self.edges.iter().map(direction).filter(|(start, _)| *start == at);
            for (_, next) in next.filter(|(_, next)| is_node(*next)) {
                if found.insert(next) {
                    todo.push(next);
                }
            }
        }
        found
    }

    fn node(&self, name: &str) -> Option<u64> {
        let mut members = self.members.iter();
        let found = members.find(|(_, member)| member.kind == NODE && member.name == name);
        found.map(|(id, _)| *id)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A mirror of `disk`, which a device has by the node of the mirror, and another disk.
    fn graph() -> Graph {
        let kinds = [
            (1, "block-driver", "file"),
            (2, "block-driver", "disk"),
            (3, "block-driver", "mirror"),
            (4, "block-driver", "new"),
            (5, "block-job", "job"),
            (6, "block-backend", "drive"),
            (7, "block-driver", "other"),
            (8, "block-driver", "base"),
        ];
        let edges = [
            (2, 1, "file"),
            (2, 8, "backing"),
            (3, 2, "backing"),
            (5, 3, "main node"),
            (5, 4, "target"),
            (6, 3, "root"),
        ];
        let nodes = kinds.map(|(id, kind, name)| json!({"id": id, "type": kind, "name": name}));
        let edges = edges
            .map(|(parent, child, name)| json!({"parent": parent, "child": child, "name": name}));
        Graph::of_answer(&json!({"nodes": nodes, "edges": edges}))
    }

    #[test]
    fn a_job_is_found_from_each_node_of_its_chain() {
        let graph = graph();
        assert_eq!((graph.file_of("disk"), graph.file_of("mirror")), (Some("file"), None));
        assert_eq!((graph.node_above("disk"), graph.node_above("mirror")), (Some("mirror"), None));
        for node in ["file", "base", "disk", "mirror", "new"] {
            assert_eq!(graph.job_on(node), Some("job"), "{node}");
        }
        assert_eq!((graph.job_on("other"), graph.job_on("unknown")), (None, None));
        assert_eq!(graph.job_on("drive"), None, "no node is called so");
        for odd in [json!(null), json!({"nodes": [1], "edges": [{"parent": 1}]})] {
            assert_eq!(Graph::of_answer(&odd), Graph::default());
        }
    }
}
