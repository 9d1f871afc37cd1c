//! The calls of a bucket that store, load and evict: each is at a safe point of its program.

use std::os::fd::BorrowedFd;
use std::thread;

use crate::bucket::{Bucket, Stored, check_name};
use crate::error::BucketError;

use crate::message::FromProgram;
use crate::name;
use crate::state::{Answer, Held};

impl Bucket {
    /// Stores all areas as a version of `name`. No change may be under way. Returns as soon as the
    /// program may change its memory again; [`Bucket::wait`] returns when the version is committed. If
    /// the bucket is closed or the program ends before the agent has captured it, nothing is stored.
    ///
    /// Waits for the store before it to be captured.
    ///
    /// # Errors
    ///
    /// If there are no areas, private memory cannot be copied, or the agent does not capture them.
    pub fn store(&self, name: &str, version: u64) -> Result<(), BucketError> {
        self.store_areas(name, version, &[])
    }

    /// Stores some of the areas as a version of `name`, all if none is named.
    ///
    /// # Errors
    ///
    /// As [`Bucket::store`], and if an area is not registered.
    pub fn store_areas(
        &self,
        name: &str,
        version: u64,
        areas: &[String],
    ) -> Result<(), BucketError> {
        check_name(name, name::check_version_name)?;
        let connection = self.ready()?;
        self.link.hold(Held::Call);
        let captured = self.capture(areas);
        let is_copy = captured.inspect_err(|_| self.link.release(Held::Call))?;
        let request = self.claim();
        self.link.state().stores.begin(request, (name.to_owned(), version));
        let areas = areas.to_vec();
        let name = name.to_owned();
        let what = format!("version {version} of {name} is not stored");
        let message = FromProgram::Store { request, name, version, is_copy, areas };
        self.link.send(connection, request, &message, None).inspect_err(|_| {
            self.link.state().stores.failed(request, "the agent was gone: store it again");
            self.link.release(Held::Request(request));
        })?;
        if is_copy {
            self.link.forget_answer(request);
            return Ok(());
        }
        done(what, self.link.await_answer(request))
    }

    /// Waits until a version is stored and committed, as it was stored last.
    ///
    /// # Errors
    ///
    /// If it is not, and why; or if the agent ended meanwhile, or before it was known: then the version
    /// is to be stored again, since the next agent knows only of those that are committed, and may find
    /// an older one of this number.
    pub fn wait(&self, name: &str, version: u64) -> Result<(), BucketError> {
        check_name(name, name::check_version_name)?;
        self.check_thread()?;
        let what = format!("version {version} of {name} is not stored");
        let failed = |reason| BucketError::Failed { what: what.clone(), reason };
        let stored = (name.to_owned(), version);
        // No agent is needed for what is known here.
        self.link.state().stores.check(&stored).map_err(failed)?;
        let connection = self.link.connect()?;
        let request = self.link.number();
        // The connection may be a new one.
        let waiting = self.link.state().stores.wait(request, &stored);
        waiting.inspect_err(|_| self.link.forget_answer(request)).map_err(failed)?;
        let message = FromProgram::Wait { request, name: name.to_owned(), version };
        self.link.send(connection, request, &message, None)?;
        done(what, self.link.await_answer(request))
    }

    /// The newest stored version of `name`, if there is one.
    ///
    /// # Errors
    ///
    /// If the agent cannot say.
    pub fn test(&self, name: &str) -> Result<Option<u64>, BucketError> {
        Ok(self.find(name, None)?.map(|stored| stored.version))
    }

    /// The newest stored version of `name` that is not above `at_most`, with its areas.
    ///
    /// # Errors
    ///
    /// If the agent cannot say.
    pub fn find(&self, name: &str, at_most: Option<u64>) -> Result<Option<Stored>, BucketError> {
        check_name(name, name::check_version_name)?;
        self.check_thread()?;
        let what = format!("the versions of {name} are not known");
        let name = name.to_owned();
        let answer =
            self.ask(what.clone(), None, |request| FromProgram::Test { request, name, at_most })?;
        match answer {
            Answer::Found(version, areas) => Ok(version.map(|version| Stored { version, areas })),
            other => done(what, other).map(|()| None),
        }
    }

    /// Fills the areas from a version of `name`. All areas that were stored must be registered, as long
    /// as they were. Other areas are left alone.
    ///
    /// # Errors
    ///
    /// If there is no such version, or an area is missing or has another length: then nothing changed.
    /// If the agent fails in the middle, the shared areas have parts of both.
    pub fn load(&self, name: &str, version: u64) -> Result<(), BucketError> {
        self.load_areas(name, version, &[])
    }

    /// Fills some of the areas from a version of `name`, all that were stored if none is named.
    ///
    /// # Errors
    ///
    /// As [`Bucket::load`], and if an area was not stored.
    pub fn load_areas(
        &self,
        name: &str,
        version: u64,
        areas: &[String],
    ) -> Result<(), BucketError> {
        let stored = self.find(name, Some(version))?;
        let stored = stored.filter(|stored| stored.version == version);
        let no_version = || BucketError::NoVersion { name: name.to_owned(), version };
        let stored = stored.ok_or_else(no_version)?;
        let connection = self.ready()?;
        self.link.hold(Held::Call);
        let loaded = self.link.regions().check_load(&stored.areas, areas);
        let loaded = loaded.inspect_err(|_| self.link.release(Held::Call))?;
        let request = self.claim();
        let what = format!("version {version} of {name} is not loaded");
        let message =
            FromProgram::Load { request, name: name.to_owned(), version, areas: areas.to_vec() };
        let outcome = self.link.send(connection, request, &message, None);
        let outcome = outcome.and_then(|()| done(what, self.link.await_answer(request)));
        match outcome {
            Ok(()) => self.link.regions().put_back(&loaded),
            Err(_) => self.link.regions().look_for_holes(),
        }
        self.link.release(Held::Request(request));
        outcome
    }

    /// Has the bucket stored, committed and compared with what was stored, and then frees it: the owner
    /// is asked by [`Owner::evict`](crate::Owner::evict). Without an owner, the caller frees the memory
    /// when this returns. The version is the newest of the name `evicted`.
    ///
    /// Afterwards no area is registered.
    ///
    /// # Errors
    ///
    /// If it cannot be stored, or the memory differs from what is stored: then nothing is freed.
    pub fn evict(&self) -> Result<(), BucketError> {
        let connection = self.ready()?;
        self.link.hold(Held::Call);
        let captured = self.link.regions().capture(&[]);
        let is_copy = captured.inspect_err(|_| self.link.release(Held::Call))?;
        let request = self.claim();
        self.link.state().evicting = Some(connection);
        let outcome =
            self.link.send(connection, request, &FromProgram::Evict { request, is_copy }, None);
        let what = "the bucket is not evicted".to_owned();
        let outcome = outcome.and_then(|()| done(what, self.link.await_answer(request)));
        self.link.state().evicting = None;
        self.link.release(Held::Request(request));
        outcome
    }

    /// Connects if the agent was lost, sends a request, and waits for its answer.
    pub(crate) fn ask(
        &self,
        what: String,
        descriptor: Option<BorrowedFd<'_>>,
        message: impl FnOnce(u32) -> FromProgram,
    ) -> Result<Answer, BucketError> {
        let connection = self.link.connect()?;
        let request = self.link.number();
        self.link.send(connection, request, &message(request), descriptor)?;
        match self.link.await_answer(request) {
            Answer::Failed(reason) => Err(BucketError::Failed { what, reason }),
            Answer::Gone => Err(BucketError::AgentGone),
            answer => Ok(answer),
        }
    }

    /// A callback that waits for the agent would wait for itself.
    pub(crate) fn check_thread(&self) -> Result<(), BucketError> {
        let is_callback = self.link.state().callback_thread == Some(thread::current().id());
        if is_callback { Err(BucketError::WithinCallback) } else { Ok(()) }
    }

    /// Copies the chosen areas that are private. Returns whether all of them are.
    fn capture(&self, areas: &[String]) -> Result<bool, BucketError> {
        let mut regions = self.link.regions();
        if regions.0.is_empty() { Err(BucketError::NoAreas) } else { regions.capture(areas) }
    }

    /// Whether areas can be stored or loaded now, and on which connection.
    fn ready(&self) -> Result<u64, BucketError> {
        self.check_thread()?;
        let connection = self.link.connect()?;
        self.link.state().check_taken()?;
        Ok(connection)
    }

    /// A number for a request, which has what this call held.
    fn claim(&self) -> u32 {
        let request = self.link.number();
        self.link.state().held = Some(Held::Request(request));
        request
    }
}

fn done(what: String, answer: Answer) -> Result<(), BucketError> {
    match answer {
        Answer::Done | Answer::Found(..) => Ok(()),
        Answer::Failed(reason) => Err(BucketError::Failed { what, reason }),
        Answer::Gone => Err(BucketError::AgentGone),
    }
}
