//! A backend that fails as planned: a crash, a hiccup, a full disk, a lost acknowledgement, a read
//! that lies.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use strongroom_backend::{
    Backend, BackendError, ObjectInfo, ObjectName, Operation, Promises, Room, Stores,
};

use crate::recording::CallKind;

/// What goes wrong with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// It does nothing and reports an error of the system.
    Io,
    /// It does nothing and reports that the place is full; only writing can.
    NoSpace,
    /// It does what was asked and reports an error nevertheless.
    LostAcknowledgement,
    /// It does what was asked and reports that the place is full nevertheless; only writing can.
    FullAfterwards,
    /// It reports an error, and a create takes effect when the test says so
    /// ([`FaultyBackend::land`]): it was still on its way.
    Late,
    /// The object is gone before the call.
    Vanish,
    /// A read gives one bit otherwise, in the middle.
    FlipBit,
    /// A read gives only the first half.
    Short,
    /// A read gives zeros.
    Zeros,
    /// A read reports that the medium cannot give this object: a bad sector.
    BadSector,
}

/// Which calls a fault looks at.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Calls {
    /// Only of these kinds; of all, where empty.
    pub kinds: Vec<CallKind>,
    /// Only in this folder.
    pub folder: Option<String>,
}

impl Calls {
    /// Every call.
    pub fn all() -> Self {
        Self::default()
    }

    /// Calls of these kinds.
    pub fn of(kinds: &[CallKind]) -> Self {
        Self { kinds: kinds.to_vec(), folder: None }
    }

    /// Of those, the ones in a folder.
    pub fn within(self, folder: &str) -> Self {
        Self { folder: Some(folder.to_owned()), ..self }
    }

    fn holds(&self, kind: CallKind, folder: &str) -> bool {
        (self.kinds.is_empty() || self.kinds.contains(&kind))
            && self.folder.as_ref().is_none_or(|wanted| wanted == folder)
    }
}

/// One fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Which calls are counted.
    pub calls: Calls,
    /// The first of them that fails; zero is the first there is.
    pub at: u64,
    /// True if all calls after it fail too.
    pub lasting: bool,
    /// How it fails.
    pub kind: FaultKind,
}

/// What is to go wrong.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FaultPlan {
    /// The first fault that fits a call decides.
    pub faults: Vec<Fault>,
}

impl FaultPlan {
    /// Nothing goes wrong.
    pub fn none() -> Self {
        Self::default()
    }

    /// A crash: the `at`-th call does nothing, and all after it fail.
    pub fn crash(at: u64) -> Self {
        Self::lasting(Calls::all(), at, FaultKind::Io)
    }

    /// A crash right after the `at`-th call was carried out: its caller gets an error.
    pub fn crash_after(at: u64) -> Self {
        let calls = Calls::all();
        let done = Fault {
            calls: calls.clone(),
            at,
            lasting: false,
            kind: FaultKind::LostAcknowledgement,
        };
        let rest = Fault { calls, at: at + 1, lasting: true, kind: FaultKind::Io };
        Self { faults: vec![done, rest] }
    }

    /// The `at`-th of some calls fails, and no other.
    pub fn hiccup(calls: Calls, at: u64, kind: FaultKind) -> Self {
        Self { faults: vec![Fault { calls, at, lasting: false, kind }] }
    }

    /// The `at`-th of some calls fails, and all after it.
    pub fn lasting(calls: Calls, at: u64, kind: FaultKind) -> Self {
        Self { faults: vec![Fault { calls, at, lasting: true, kind }] }
    }
}

/// Fails as planned, and hands all other calls on.
#[derive(Debug)]
pub struct FaultyBackend<B: ?Sized> {
    inner: Arc<B>,
    // A plain mutex: held while calls are counted.
    faults: Mutex<Vec<(Fault, u64)>>,
    fired: AtomicU64,
    // A plain mutex: held while a create is noted.
    on_their_way: Mutex<Vec<(ObjectName, Vec<u8>)>>,
    // A plain mutex: held while a removal is noted.
    vanished: Mutex<Vec<ObjectName>>,
}

impl<B: Backend + ?Sized> FaultyBackend<B> {
    /// Hands on to `inner` what does not fail.
    pub fn new(inner: Arc<B>, plan: FaultPlan) -> Self {
        let faults = Mutex::new(plan.faults.into_iter().map(|fault| (fault, 0)).collect());
        let (on_their_way, vanished) = (Mutex::default(), Mutex::default());
        Self { inner, faults, fired: AtomicU64::new(0), on_their_way, vanished }
    }

    /// Lets all creates take effect that were still on their way, those whose names are free.
    pub fn land(&self) {
        for (name, bytes) in self.on_their_way().drain(..) {
            let _ = self.inner.create(&name, &bytes);
        }
    }

    fn on_their_way(&self) -> MutexGuard<'_, Vec<(ObjectName, Vec<u8>)>> {
        self.on_their_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many calls have failed so far. A test that fails each call in turn is at its end once
    /// this stays zero.
    pub fn fired(&self) -> u64 {
        self.fired.load(Ordering::Relaxed)
    }

    /// The objects that [vanished](FaultKind::Vanish) so far, also those that were written meanwhile.
    pub fn vanished(&self) -> Vec<ObjectName> {
        self.vanished.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn vanish(&self, name: &ObjectName) -> Result<(), BackendError> {
        self.inner.remove(name)?;
        self.vanished.lock().unwrap_or_else(PoisonError::into_inner).push(name.clone());
        Ok(())
    }

    /// The fault of this call, if it has one; every fault counts every call that it looks at.
    fn fault(&self, kind: CallKind, folder: &str) -> Option<FaultKind> {
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = None;
        for (fault, seen) in faults.iter_mut() {
            if fault.calls.holds(kind, folder) {
                let hits = *seen == fault.at || (fault.lasting && *seen > fault.at);
                *seen += 1;
                found = found.or(hits.then_some(fault.kind));
            }
        }
        if found.is_some() {
            self.fired.fetch_add(1, Ordering::Relaxed);
        }
        found
    }

    fn write(
        &self,
        fault: Option<FaultKind>,
        operation: Operation,
        name: &ObjectName,
        call: impl FnOnce(&B) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        match fault {
            None => call(&self.inner),
            Some(FaultKind::NoSpace) => {
                Err(BackendError::NoSpace { name: name.clone(), may_exist: false })
            }
            Some(FaultKind::FullAfterwards) => {
                call(&self.inner)?;
                Err(BackendError::NoSpace { name: name.clone(), may_exist: true })
            }
            Some(FaultKind::LostAcknowledgement) => {
                call(&self.inner)?;
                Err(planned(operation, name.as_str()))
            }
            Some(_) => Err(planned(operation, name.as_str())),
        }
    }
}

fn planned(operation: Operation, what: &str) -> BackendError {
    let source = io::Error::other("a planned fault");
    BackendError::Io { operation, what: what.to_owned(), source }
}

impl<B: Backend + ?Sized> Backend for FaultyBackend<B> {
    fn read(&self, name: &ObjectName, offset: u64, length: usize) -> Result<Vec<u8>, BackendError> {
        let Some(fault) = self.fault(CallKind::Read, name.folder()) else {
            return self.inner.read(name, offset, length);
        };
        match fault {
            FaultKind::Vanish => {
                self.vanish(name)?;
                return self.inner.read(name, offset, length);
            }
            FaultKind::Io
            | FaultKind::NoSpace
            | FaultKind::LostAcknowledgement
            | FaultKind::FullAfterwards
            | FaultKind::Late => {
                return Err(planned(Operation::Read, name.as_str()));
            }
            FaultKind::BadSector => {
                let source = io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error());
                return Err(BackendError::io(Operation::Read, name, source));
            }
            FaultKind::FlipBit | FaultKind::Short | FaultKind::Zeros => {}
        }
        let mut bytes = self.inner.read(name, offset, length)?;
        let middle = bytes.len() / 2;
        match fault {
            FaultKind::Short => bytes.truncate(middle),
            FaultKind::Zeros => bytes.fill(0),
            _ => {
                if let Some(byte) = bytes.get_mut(middle) {
                    *byte ^= 0x10;
                }
            }
        }
        Ok(bytes)
    }

    fn size(&self, name: &ObjectName) -> Result<u64, BackendError> {
        match self.fault(CallKind::Size, name.folder()) {
            None => self.inner.size(name),
            Some(FaultKind::Vanish) => {
                self.vanish(name)?;
                self.inner.size(name)
            }
            Some(FaultKind::Short) => Ok(self.inner.size(name)? / 2),
            Some(_) => Err(planned(Operation::Read, name.as_str())),
        }
    }

    fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), BackendError> {
        let fault = self.fault(CallKind::Create, name.folder());
        if fault == Some(FaultKind::Late) {
            self.on_their_way().push((name.clone(), bytes.to_vec()));
        }
        self.write(fault, Operation::Write, name, |inner| inner.create(name, bytes))
    }

    fn replace(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), BackendError> {
        let fault = self.fault(CallKind::Replace, name.folder());
        self.write(fault, Operation::Write, name, |inner| inner.replace(name, bytes))
    }

    fn remove(&self, name: &ObjectName) -> Result<(), BackendError> {
        let fault = self.fault(CallKind::Remove, name.folder());
        self.write(fault, Operation::Remove, name, |inner| inner.remove(name))
    }

    fn room(&self) -> Option<&dyn Room> {
        self.inner.room()
    }

    fn stores(&self) -> Option<&dyn Stores> {
        self.inner.stores()
    }

    fn complaint(&self) -> Option<String> {
        self.inner.complaint()
    }

    fn list(&self, folder: &str) -> Result<Vec<ObjectInfo>, BackendError> {
        match self.fault(CallKind::List, folder) {
            None => self.inner.list(folder),
            Some(FaultKind::Vanish) => {
                if let Some(first) = self.inner.list(folder)?.first() {
                    self.vanish(&first.name)?;
                }
                self.inner.list(folder)
            }
            Some(_) => Err(planned(Operation::List, folder)),
        }
    }

    fn sweep(&self) -> Result<usize, BackendError> {
        match self.fault(CallKind::Sweep, "") {
            None => self.inner.sweep(),
            Some(_) => Err(planned(Operation::Remove, "")),
        }
    }

    fn promises(&self) -> Promises {
        self.inner.promises()
    }

    fn holds_at_most(&self, folder: &str) -> Result<bool, BackendError> {
        self.inner.holds_at_most(folder)
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn folders(&self) -> Vec<PathBuf> {
        self.inner.folders()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strongroom_backend::MemoryBackend;

    fn name(file: &str) -> ObjectName {
        ObjectName::new("arenas", file)
    }

    fn faulty(plan: FaultPlan) -> FaultyBackend<MemoryBackend> {
        let inner = MemoryBackend::new();
        inner.create(&name("old"), &[7; 10]).unwrap();
        FaultyBackend::new(Arc::new(inner), plan)
    }

    #[test]
    fn a_crash_lasts_and_a_hiccup_passes() {
        for (plan, expected) in [
            (FaultPlan::none(), [true, true, true, true]),
            (FaultPlan::crash(1), [true, false, false, false]),
            (
                FaultPlan::hiccup(Calls::of(&[CallKind::Create]), 1, FaultKind::NoSpace),
                [true, true, false, true],
            ),
        ] {
            let backend = faulty(plan);
            let answers = [
                backend.create(&name("a"), b"").is_ok(),
                backend.list("arenas").is_ok(),
                backend.create(&name("b"), b"").is_ok(),
                backend.read(&name("old"), 0, 1).is_ok(),
            ];
            assert_eq!(answers, expected);
            let failed = answers.iter().filter(|ok| !**ok).count();
            assert_eq!(backend.fired(), failed as u64);
        }
    }

    #[test]
    fn a_crash_after_a_call_leaves_what_it_did() {
        let backend = faulty(FaultPlan::crash_after(0));
        assert!(backend.create(&name("a"), b"1").is_err());
        assert!(backend.create(&name("b"), b"1").is_err());
        assert_eq!(backend.inner.list("arenas").unwrap().len(), 2);
    }

    #[test]
    fn reads_lie_as_planned() {
        let reads = || Calls::of(&[CallKind::Read]).within("arenas");
        for (kind, expected) in [
            (FaultKind::FlipBit, Some(vec![7, 7, 7, 7, 7, 0x17, 7, 7, 7, 7])),
            (FaultKind::Short, Some(vec![7; 5])),
            (FaultKind::Zeros, Some(vec![0; 10])),
            (FaultKind::Io, None),
            (FaultKind::Vanish, None),
        ] {
            let backend = faulty(FaultPlan::hiccup(reads(), 0, kind));
            assert_eq!(backend.read(&name("old"), 0, 10).ok(), expected, "{kind:?}");
            let again = backend.read(&name("old"), 0, 10).ok();
            assert_eq!(again.is_some(), kind != FaultKind::Vanish, "{kind:?}");
        }
    }
}
