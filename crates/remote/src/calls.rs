//! Many calls over one connection: each has a number, and a thread gives every answer to the call
//! that waits for it. Our own protocol and SFTP both work so.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::process::ChildStdout;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use strongroom_base::Stopwatch;

use crate::failure::Failure;
use crate::rate::Line;
use crate::shell::{Heard, Shell};

/// Frames that may wait for one call. It collects them at once, so they are few.
const WAITING_FRAMES: usize = 64;
/// How many times the patience a call waits while others are answered: its answer may be behind all
/// of theirs on a slow line, but a server may also have forgotten it.
const TURNS_MAX: u32 = 30;

/// How long a program at the far end of `ssh` may take nothing of what is sent.
const PROGRESS: Duration = Duration::from_secs(60);

/// The two directions of a connection, and how to end it.
pub(crate) struct Link {
    pub(crate) receiving: Box<dyn Read + Send>,
    pub(crate) sending: Box<dyn Write + Send>,
    pub(crate) end: Arc<dyn End>,
}

/// How a connection ends.
pub(crate) trait End: Send + Sync {
    /// Ends it: both directions fail from now on.
    fn end(&self);

    /// Why it ended, if more is known than that.
    fn reason(&self) -> Option<Failure>;
}

/// Whether anything was ever heard from a place, over any of its connections.
pub(crate) type Acquaintance = Arc<AtomicBool>;

/// A connection by `ssh`, and what was heard over it.
struct OfShell {
    shell: Shell,
    /// Something came from the far end.
    has_spoken: Arc<AtomicBool>,
    place: Acquaintance,
}

impl End for OfShell {
    fn end(&self) {
        self.shell.end();
    }

    fn reason(&self) -> Option<Failure> {
        let heard = match (&self.has_spoken, &self.place) {
            (now, _) if now.load(Ordering::Relaxed) => Heard::Now,
            (_, before) if before.load(Ordering::Relaxed) => Heard::Before,
            _ => Heard::Never,
        };
        Some(self.shell.failure(heard))
    }
}

/// What the far end of `ssh` says; that it says something is noted.
struct Listening {
    output: ChildStdout,
    has_spoken: Arc<AtomicBool>,
    place: Acquaintance,
}

impl Read for Listening {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.output.read(into)?;
        if count > 0 {
            self.has_spoken.store(true, Ordering::Relaxed);
            self.place.store(true, Ordering::Relaxed);
        }
        Ok(count)
    }
}

impl Link {
    /// A connection to a place by `ssh`.
    pub(crate) fn of(shell: Shell, place: &Acquaintance) -> Self {
        Self::of_shell(shell, place, PROGRESS)
    }

    fn of_shell(mut shell: Shell, place: &Acquaintance, progress: Duration) -> Self {
        let (has_spoken, place) = (Arc::<AtomicBool>::default(), place.clone());
        let sending = Box::new(shell.take_input(progress));
        let receiving = Box::new(Listening {
            output: shell.take_output(),
            has_spoken: has_spoken.clone(),
            place: place.clone(),
        });
        Self { receiving, sending, end: Arc::new(OfShell { shell, has_spoken, place }) }
    }
}

/// One frame of an answer.
pub(crate) trait Answer: Send + Sized + 'static {
    /// The next frame, with the number of its call; none at an orderly end.
    fn receive(source: &mut dyn Read) -> io::Result<Option<(u32, Self)>>;

    /// Its length, for the line's rate.
    fn bytes(&self) -> usize;
}

/// The calls of one connection.
pub(crate) struct Calls<A> {
    shared: Arc<Shared<A>>,
    patience: Duration,
}

/// What callers and the receiving thread share.
struct Shared<A> {
    // Plain mutexes: the first is held while one frame is sent, the second for a look.
    sending: Mutex<Box<dyn Write + Send>>,
    waiting: Mutex<Waiting<A>>,
    end: Arc<dyn End>,
    began: Stopwatch,
    /// When the last frame of any call came, in milliseconds from the beginning.
    heard: AtomicU64,
}

/// The calls that wait, by their numbers.
struct Waiting<A> {
    last: u32,
    calls: HashMap<u32, SyncSender<A>>,
    /// Nothing more will come.
    is_over: bool,
}

/// A call that waits for its answer until it is dropped.
pub(crate) struct Call<A> {
    shared: Arc<Shared<A>>,
    pub(crate) number: u32,
    answers: Receiver<A>,
    patience: Duration,
}

impl<A: Answer> Calls<A> {
    /// Begins to receive, after `greet` has received what comes before the first frame. A call waits
    /// this long for each frame.
    pub(crate) fn begin(
        link: Link,
        line: Arc<Line>,
        patience: Duration,
        greet: fn(&mut dyn Read) -> io::Result<()>,
    ) -> Result<Self, Failure> {
        let Link { mut receiving, sending, end } = link;
        let waiting = Waiting { last: 0, calls: HashMap::new(), is_over: false };
        let (sending, waiting) = (Mutex::new(sending), Mutex::new(waiting));
        let (began, heard) = (Stopwatch::start(), AtomicU64::new(0));
        let shared = Arc::new(Shared { sending, waiting, end, began, heard });
        let of_thread = shared.clone();
        std::thread::Builder::new()
            .name("receiver".to_owned())
            .spawn(move || of_thread.receive(&mut *receiving, &line, greet))
            .map_err(Failure::Lost)?;
        Ok(Self { shared, patience })
    }

    /// Whether calls are worth making.
    pub(crate) fn is_alive(&self) -> bool {
        !self.shared.waiting().is_over
    }

    /// Begins a call: nothing is sent yet.
    pub(crate) fn call(&self) -> Result<Call<A>, Failure> {
        let mut waiting = self.shared.waiting();
        if waiting.is_over {
            drop(waiting);
            return Err(self.shared.lost());
        }
        loop {
            waiting.last = waiting.last.wrapping_add(1);
            if !waiting.calls.contains_key(&waiting.last) {
                break;
            }
        }
        let number = waiting.last;
        let (sender, answers) = sync_channel(WAITING_FRAMES);
        waiting.calls.insert(number, sender);
        drop(waiting);
        Ok(Call { shared: self.shared.clone(), number, answers, patience: self.patience })
    }
}

impl<A> Drop for Calls<A> {
    fn drop(&mut self) {
        // The receiving thread ends with it.
        self.shared.end.end();
    }
}

impl<A> Call<A> {
    /// Sends bytes as they are: a whole frame, and a greeting before the first.
    pub(crate) fn send(&self, bytes: &[u8]) -> Result<(), Failure> {
        self.shared.send(bytes)
    }

    /// The next frame of the answer.
    pub(crate) fn next(&self) -> Result<A, Failure> {
        let waited = Stopwatch::start();
        let mut wait = self.patience;
        loop {
            match self.answers.recv_timeout(wait) {
                Ok(answer) => return Ok(answer),
                Err(RecvTimeoutError::Disconnected) => return Err(self.shared.lost()),
                Err(RecvTimeoutError::Timeout) => {}
            }
            // On a slow line, what others asked for before comes first.
            wait = self.patience.saturating_sub(self.shared.quiet());
            if wait.is_zero() || waited.elapsed() > self.patience * TURNS_MAX {
                let why = format!("no answer for {} seconds", self.patience.as_secs());
                return Err(self.broken(why));
            }
        }
    }

    /// A frame that has come already.
    pub(crate) fn early(&self) -> Option<A> {
        self.answers.try_recv().ok()
    }

    /// The other side broke the rules: the connection is of no use any more.
    pub(crate) fn broken(&self, why: String) -> Failure {
        self.shared.end.end();
        Failure::lost(why)
    }
}

impl<A> Drop for Call<A> {
    fn drop(&mut self) {
        self.shared.waiting().calls.remove(&self.number);
    }
}

impl<A> Shared<A> {
    fn waiting(&self) -> MutexGuard<'_, Waiting<A>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long nothing was received.
    fn quiet(&self) -> Duration {
        let heard = Duration::from_millis(self.heard.load(Ordering::Relaxed));
        self.began.elapsed().saturating_sub(heard)
    }

    fn send(&self, bytes: &[u8]) -> Result<(), Failure> {
        let mut sending = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = sending.write_all(bytes).and_then(|()| sending.flush());
        drop(sending);
        sent.map_err(|error| {
            self.end.end();
            // It did not end by itself, so it does not know why.
            let is_known = error.kind() == io::ErrorKind::TimedOut;
            self.end.reason().filter(|_| !is_known).unwrap_or(Failure::Lost(error))
        })
    }

    fn lost(&self) -> Failure {
        self.end.reason().unwrap_or_else(|| Failure::lost("the connection ended"))
    }
}

impl<A: Answer> Shared<A> {
    /// Receives until the connection ends.
    fn receive(
        &self,
        source: &mut dyn Read,
        line: &Line,
        greet: fn(&mut dyn Read) -> io::Result<()>,
    ) {
        if greet(source).is_ok() {
            while let Ok(Some((number, answer))) = A::receive(source) {
                line.receive(answer.bytes());
                self.heard.store(self.began.elapsed().as_millis() as u64, Ordering::Relaxed);
                // The answer of a call that was given up is dropped.
                let Some(call) = self.waiting().calls.get(&number).cloned() else { continue };
                // It waits while the call is busy with the frames before, and fails if it is over.
                let _ = call.send(answer);
            }
        }
        let mut waiting = self.waiting();
        waiting.is_over = true;
        // Those that wait see that their channel ended.
        waiting.calls.clear();
        drop(waiting);
        self.end.end();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixStream;

    use strongroom_base::{Cancel, OsEntropy, SystemClock};

    use super::*;
    use crate::address::Address;
    use crate::rate::Rate;
    use crate::settings::{Settings, Variables};
    use crate::shell::What;

    struct Byte;

    impl Answer for Byte {
        fn receive(source: &mut dyn Read) -> io::Result<Option<(u32, Self)>> {
            let mut number = [0];
            source.read_exact(&mut number)?;
            Ok(Some((u32::from(number[0]), Self)))
        }

        fn bytes(&self) -> usize {
            1
        }
    }

    impl End for UnixStream {
        fn end(&self) {
            let _ = self.shutdown(std::net::Shutdown::Both);
        }

        fn reason(&self) -> Option<Failure> {
            None
        }
    }

    /// The server of `ssh` may answer although the program at the far end hangs.
    #[test]
    fn a_program_that_takes_nothing_is_given_up() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("ssh");
        std::fs::write(&program, "#!/bin/sh\nexec sleep 600\n").unwrap();
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
        let variables = [("STRONGROOM_SSH".into(), program.into())];
        let settings = Settings {
            variables: Variables::new(variables),
            rate: Rate::default(),
            connections: None,
            patience: Duration::from_secs(10),
            cancel: Cancel::new(),
            clock: Arc::new(SystemClock),
            entropy: Arc::new(OsEntropy),
            is_drawn: |_| false,
            judge: |_, _| strongroom_backend::Soundness::Repairable,
        };
        let address = Address::parse("ssh://host/x").unwrap().unwrap();
        let shell = Shell::spawn(&address, &settings, What::Subsystem("x")).unwrap();
        let link = Link::of_shell(shell, &Acquaintance::default(), Duration::from_millis(300));
        let line = Arc::new(Line::default());
        let calls = Calls::<Byte>::begin(link, line, Duration::from_secs(60), |_| Ok(())).unwrap();
        let (ended, waiting) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let asked = calls.call().unwrap();
            // Others wait for the one that sends.
            std::thread::scope(|scope| {
                for call in (0..4).map(|_| calls.call().unwrap()) {
                    let ended = &ended;
                    scope.spawn(move || ended.send(call.send(&[7; 1 << 20])));
                }
            });
            ended.send(asked.next().map(drop))
        });
        for _ in 0..5 {
            let ended = waiting.recv_timeout(Duration::from_secs(20)).expect("it ends");
            assert!(matches!(ended, Err(Failure::Lost(_))), "{ended:?}");
        }
    }

    #[test]
    fn a_call_waits_while_others_are_answered_but_not_in_silence() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let link = Link {
            receiving: Box::new(near.try_clone().unwrap()),
            sending: Box::new(near.try_clone().unwrap()),
            end: Arc::new(near),
        };
        let line = Arc::new(Line::default());
        let patience = Duration::from_millis(400);
        let calls = Calls::<Byte>::begin(link, line, patience, |_| Ok(())).unwrap();
        let (first, second) = (calls.call().unwrap(), calls.call().unwrap());
        let server = std::thread::spawn(move || {
            for _ in 0..12 {
                std::thread::sleep(Duration::from_millis(100));
                far.write_all(&[1]).unwrap();
            }
            far.write_all(&[2]).unwrap();
            far
        });
        second.next().map(drop).unwrap();
        let far = server.join().unwrap();
        for _ in 0..12 {
            first.next().map(drop).unwrap();
        }
        let waited = Stopwatch::start();
        assert!(matches!(first.next(), Err(Failure::Lost(_))));
        assert!(waited.elapsed() < Duration::from_secs(5), "{:?}", waited.elapsed());
        assert!(calls.call().is_err() || first.next().is_err());
        drop(far);
    }
}
