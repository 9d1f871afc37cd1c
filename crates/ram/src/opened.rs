//! Memory that a program has handed over. Its file system may be the program's own (FUSE, NFS), and keep
//! each call on it waiting: so what the agent's thread wants to know of it is found out when it comes, on
//! the thread that listens to its program, and it is closed on a thread that may wait.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use strongroom_source::memory::handed::Handed;
use strongroom_source::memory::writers::FileNumber;

use crate::counts::Counted;

/// File systems in memory, by their numbers: to close a file there waits for nothing.
const IN_MEMORY: [u32; 2] = [
    0x0102_1994, // tmpfs, and memory files
    0x9584_58f6, // hugetlbfs
];

/// Memory that a program has handed over, counted as its user's while it is open.
#[derive(Debug)]
pub struct Opened {
    /// Taken out when this is dropped.
    handed: Option<Handed>,
    number: FileNumber,
    user: u32,
    /// Absent if it can be closed in place.
    closers: Option<Closers>,
    counted: Option<Counted>,
}

impl Opened {
    /// Takes the first `bytes` bytes of a file of this user. Its file system may have this wait.
    ///
    /// # Errors
    ///
    /// Those of [`Handed::take`].
    pub fn take(file: File, bytes: u64, user: u32, closers: &Closers) -> io::Result<Self> {
        // The numbers have 32 bits, in a field that may have a sign.
        let kind = rustix::fs::fstatfs(&file)?.f_type as u32;
        let handed = Handed::take(file, bytes)?;
        let number = handed.number()?;
        let closers = (!IN_MEMORY.contains(&kind)).then(|| closers.clone());
        Ok(Self { handed: Some(handed), number, user, closers, counted: None })
    }

    /// Counts it from now on.
    pub fn counted(mut self, counted: Counted) -> Self {
        self.counted = Some(counted);
        self
    }

    /// Which file it was when it was taken, and is.
    pub fn number(&self) -> FileNumber {
        self.number
    }
}

impl Deref for Opened {
    type Target = Handed;

    fn deref(&self) -> &Handed {
        self.handed.as_ref().expect("it is taken out only when this is dropped")
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        let Some(closers) = self.closers.take() else { return };
        closers.close(self.user, Box::new((self.handed.take(), self.counted.take())));
    }
}

/// What waits to be closed, for each user one after the other. While a user has something there, there
/// is a thread of that user: so one whose file system does not answer keeps no other user waiting. What
/// waits is counted, and so bounded.
#[derive(Clone, Default)]
// A plain mutex: held to add one, and to take one out.
pub struct Closers(Arc<Mutex<BTreeMap<u32, VecDeque<Closing>>>>);

/// Dropping it closes it.
type Closing = Box<dyn Send>;

impl std::fmt::Debug for Closers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.waiting().keys()).finish()
    }
}

impl Closers {
    fn close(&self, user: u32, closing: Closing) {
        let mut waiting = self.waiting();
        if let Some(queue) = waiting.get_mut(&user) {
            return queue.push_back(closing);
        }
        waiting.insert(user, VecDeque::from([closing]));
        drop(waiting);
        let closers = self.clone();
        let thread = thread::Builder::new().name("close".to_owned());
        if thread.spawn(move || closers.work(user)).is_err() {
            self.work(user);
        }
    }

    /// Closes what there is of a user.
    fn work(&self, user: u32) {
        loop {
            let mut waiting = self.waiting();
            let Some(closing) = waiting.get_mut(&user).and_then(VecDeque::pop_front) else {
                waiting.remove(&user);
                return;
            };
            drop(waiting);
            drop(closing);
        }
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeMap<u32, VecDeque<Closing>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    use super::*;
    use crate::counts::Counts;

    /// What hangs when it is closed, until the other end of its channel is gone.
    struct Hanging(Receiver<()>, Sender<thread::ThreadId>);

    impl Drop for Hanging {
        fn drop(&mut self) {
            self.1.send(thread::current().id()).unwrap();
            let _ = self.0.recv();
        }
    }

    const LIMIT: Duration = Duration::from_secs(20);

    #[test]
    fn what_hangs_when_it_is_closed_keeps_only_its_user_waiting() {
        let (closers, (begun, begins)) = (Closers::default(), channel());
        let hanging = || {
            let (go_on, may_go_on) = channel();
            (go_on, Box::new(Hanging(may_go_on, begun.clone())))
        };
        let ((one, first), (two, second), (three, of_other)) = (hanging(), hanging(), hanging());
        // This thread goes on.
        closers.close(1, first);
        closers.close(1, second);
        closers.close(2, of_other);
        let threads = [(), ()].map(|()| begins.recv_timeout(LIMIT).unwrap());
        assert!(threads[0] != threads[1] && !threads.contains(&thread::current().id()));
        // The second of a user waits for the first.
        assert!(begins.recv_timeout(Duration::from_millis(50)).is_err());
        drop(one);
        assert!(threads.contains(&begins.recv_timeout(LIMIT).unwrap()));
        drop((two, three));
        while !closers.waiting().is_empty() {
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn it_is_counted_until_it_is_closed() {
        let (closers, counts) = (Closers::default(), Counts::default());
        let here = tempfile::tempfile_in(".").unwrap();
        for file in [tempfile::tempfile_in("/dev/shm").unwrap(), here] {
            let opened = Opened::take(file, 0, 7, &closers).unwrap().counted(counts.count(7));
            let is_in_place = opened.closers.is_none();
            assert_eq!(opened.number(), Handed::number(&opened).unwrap());
            assert_eq!(counts.of(7), 1);
            drop(opened);
            while !is_in_place && counts.of(7) > 0 {
                thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(counts.of(7), 0);
        }
    }
}
