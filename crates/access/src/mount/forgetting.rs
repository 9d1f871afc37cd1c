//! Asking the kernel to forget, once it knows more than is to be remembered.
//!
//! The kernel forgets by itself only if it needs the memory. Until then each directory that
//! anything walked through costs a record here, and far more in the kernel.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use fuser::{INodeNo, Notifier};

use super::nodes::Nodes;

/// The kernel is asked at most this often: what is in use stays, however often it is asked.
const PAUSE: Duration = Duration::from_secs(1);

/// Watches how much is remembered.
pub struct Forgetting {
    nodes: Arc<Nodes>,
    nodes_max: usize,
    wake: SyncSender<()>,
}

/// What the thread needs that asks the kernel.
pub struct Asking {
    nodes: Arc<Nodes>,
    wake: Receiver<()>,
}

/// A watch over these nodes, and what asks the kernel when there are more than `nodes_max`.
pub fn watch(nodes: Arc<Nodes>, nodes_max: usize) -> (Forgetting, Asking) {
    let (wake, woken) = sync_channel(1);
    (Forgetting { nodes: nodes.clone(), nodes_max, wake }, Asking { nodes, wake: woken })
}

impl Forgetting {
    /// To be called when the kernel got to know something.
    pub fn look(&self) {
        if self.nodes.count() > self.nodes_max {
            // If a wake-up is waiting already, one is enough.
            let _ = self.wake.try_send(());
        }
    }
}

impl Asking {
    /// Asks on a thread of its own until the watch is dropped. The thread of a request must not
    /// ask: the kernel holds the directory until the request is answered.
    pub fn start(self, notifier: Notifier) -> io::Result<()> {
        let run = move || {
            for () in self.wake {
                // With a snapshot's `/` the kernel lets go of all below it that is not in use.
                for root in self.nodes.root_names() {
                    // One that it no longer knows is an error, and no loss.
                    let _ =
                        notifier.inval_entry(INodeNo(root.above), OsStr::from_bytes(&root.name));
                }
                std::thread::sleep(PAUSE);
            }
        };
        std::thread::Builder::new().name("mount-forget".to_owned()).spawn(run).map(drop)
    }
}
