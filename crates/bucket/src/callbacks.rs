//! The thread that calls the program: it asks for a halt, copies private memory meanwhile, and lets
//! the program go on in any case.
//!
//! It is not the thread that reads the socket, so a program that stores on its way to a safe point is
//! answered while it is being asked to hold still.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use crate::link::Link;
use crate::message::FromProgram;
use crate::range::KeyRange;
use crate::state::{Held, What};

/// What a program does when the agent asks. The calls come from a thread of the library, one at a
/// time. They may register areas and ranges, but may neither store nor load.
pub trait Owner: Send {
    /// Returns once no change of the areas is under way. None may begin until [`Owner::resume`]. It may
    /// wait for a thread that is in [`Bucket::store`](crate::Bucket::store), and not for one in
    /// [`Bucket::evict`](crate::Bucket::evict), which waits for [`Owner::evict`] on this thread.
    ///
    /// # Errors
    ///
    /// If the program cannot hold still now. Then it goes on, and nothing is stored.
    fn quiesce(&mut self) -> Result<(), String>;

    /// The program may go on. It is called after each `quiesce` that returned `Ok`, unless an eviction
    /// ended the bucket.
    fn resume(&mut self);

    /// The areas of the program, which holds still, have been filled from a stored version. It looks
    /// at them and registers what they say, such as a range.
    ///
    /// # Errors
    ///
    /// If the program cannot use what is there.
    fn loaded(&mut self) -> Result<(), String> {
        Ok(())
    }

    /// Frees the memory of all areas, which is stored and committed. Afterwards none is registered.
    ///
    /// # Errors
    ///
    /// If the memory is kept. Then the program goes on.
    fn evict(&mut self) -> Result<(), String>;
}

/// The owner of a bucket, once it is registered.
pub type SharedOwner = Arc<Mutex<Option<Box<dyn Owner>>>>;

/// The thread of callbacks.
pub struct Callbacks {
    link: Arc<Link>,
    owner: SharedOwner,
    /// The epoch in which the program holds still.
    quiesced: Option<u64>,
    /// In this epoch, what the agent wrote into shadows is in the memory.
    is_loaded: bool,
}

impl Callbacks {
    pub fn new(link: Arc<Link>, owner: SharedOwner) -> Self {
        Self { link, owner, quiesced: None, is_loaded: false }
    }

    /// Carries out tasks until the bucket is closed.
    pub fn attend(mut self) {
        self.link.state().callback_thread = Some(std::thread::current().id());
        while let Some(task) = self.link.next_task() {
            self.carry_out(task.connection, task.what);
        }
        self.go_on();
    }

    fn carry_out(&mut self, connection: u64, what: What) {
        match what {
            What::Quiesce(epoch) => {
                let outcome = self.quiesce(connection, epoch);
                let is_copy = outcome.as_ref().is_ok_and(|is_copy| *is_copy);
                let outcome = outcome.map(drop);
                let answer = FromProgram::Quiesced { epoch, is_copy, outcome };
                self.link.answer(connection, &answer);
            }
            What::Load(epoch, keys) => {
                let outcome = self.load(epoch, keys);
                self.link.answer(connection, &FromProgram::Loaded { epoch, outcome });
            }
            What::Resume { epoch, is_reading } => {
                // What the agent reads, it did not fill.
                if !is_reading {
                    if self.quiesced == Some(epoch) && !self.is_loaded {
                        self.link.regions().look_for_holes();
                    }
                    self.link.release(Held::Epoch(epoch));
                }
                if self.quiesced == Some(epoch) {
                    self.go_on();
                }
            }
            What::Evict(epoch) => {
                let outcome = self.evict(connection, epoch);
                self.link.answer(connection, &FromProgram::Evicted { epoch, outcome });
            }
            // The connection may have ended while the program was being asked.
            What::Lost => self.let_go(),
        }
    }

    /// Stops the program and copies its private memory. Returns whether all of it is copied.
    ///
    /// If the agent has not all areas, what it stores is not the bucket: nothing is stored.
    fn quiesce(&mut self, connection: u64, epoch: u64) -> Result<bool, String> {
        let taken = self.link.state().check_taken();
        if let Err(error) = taken {
            self.let_go();
            return Err(error.to_string());
        }
        match self.quiesced {
            // The agent began again without saying so: the program has not moved.
            Some(before) => self.link.release(Held::Epoch(before)),
            None => self.call(|owner| owner.quiesce())??,
        }
        self.quiesced = Some(epoch);
        self.is_loaded = false;
        if !self.link.hold_for(connection, epoch) {
            self.go_on();
            return Err(OVER.to_owned());
        }
        let captured = self.link.regions().capture(&[]);
        captured.map_err(|error| {
            self.link.release(Held::Epoch(epoch));
            self.go_on();
            error.to_string()
        })
    }

    /// Puts what the agent wrote into private memory. The bucket has the keys that were stored, unless its
    /// program has said others: the next agent hears of them, and loads nothing over them.
    fn load(&mut self, epoch: u64, keys: Option<(KeyRange, u64)>) -> Result<(), String> {
        if self.quiesced != Some(epoch) {
            return Err(NOT_STILL.to_owned());
        }
        self.link.regions().put_back(&[]);
        self.is_loaded = true;
        self.call(|owner| owner.loaded())??;
        let mut state = self.link.state();
        state.range = state.range.take().or(keys);
        Ok(())
    }

    /// Has the memory freed. Areas are forgotten first: the program may free or reuse the addresses at
    /// once. So is the range: with the next agent the bucket would pass for one that has its keys, and
    /// a cut for complete that has none of them.
    ///
    /// Memory that the agent has not is not stored, so nothing is freed. What an earlier agent stored is
    /// not what the program asks the present one to store.
    fn evict(&mut self, connection: u64, epoch: u64) -> Result<(), String> {
        self.link.state().check_taken().map_err(|error| error.to_string())?;
        let is_evicting = self.link.state().evicting == Some(connection);
        if self.quiesced != Some(epoch) && !is_evicting {
            return Err(NOT_STILL.to_owned());
        }
        let regions = std::mem::take(&mut *self.link.regions());
        let mut state = self.link.state();
        let (has_owner, range) = (state.has_owner, state.range.take());
        drop(state);
        if has_owner && let Err(reason) = self.call(|owner| owner.evict()).flatten() {
            *self.link.regions() = regions;
            let mut state = self.link.state();
            state.range = state.range.take().or(range);
            return Err(reason);
        }
        self.quiesced = None;
        self.link.release(Held::Epoch(epoch));
        Ok(())
    }

    /// Lets the program go on, and shadows and memory change, if they are held for an epoch.
    fn let_go(&mut self) {
        if let Some(epoch) = self.quiesced {
            self.link.release(Held::Epoch(epoch));
        }
        self.go_on();
    }

    /// Lets the program go on if it holds still.
    fn go_on(&mut self) {
        if self.quiesced.take().is_some() {
            // An owner that panics in `resume` cannot be helped.
            drop(self.call(|owner| owner.resume()));
        }
    }

    /// Calls the owner.
    fn call<T>(&self, call: impl FnOnce(&mut dyn Owner) -> T) -> Result<T, String> {
        let mut owner = self.owner.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(owner) = owner.as_mut() else {
            return Err(NO_CALLBACK.to_owned());
        };
        catch_unwind(AssertUnwindSafe(|| call(owner.as_mut())))
            .map_err(|_| "a callback of the program panicked".to_owned())
    }
}

const NO_CALLBACK: &str =
    "no callback: the program cannot be asked to hold still, and stores only by itself";
const OVER: &str = "the agent let the program go on before it held still";
const NOT_STILL: &str = "the program does not hold still in this epoch: quiesce it first";
