//! Threads of a library in someone else's program: they take none of its signals.
//!
//! A signal goes to any thread that does not block it. If it went to one of these, a program that
//! waits in its own thread to be interrupted would never wake.

use std::ffi::c_int;
use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::thread::{Builder, JoinHandle};

use rustix::process::Signal;

/// Signals that a thread raises itself by what it does. A program may handle those of its own memory.
const RAISED: [Signal; 6] =
    [Signal::SEGV, Signal::BUS, Signal::FPE, Signal::ILL, Signal::TRAP, Signal::SYS];
/// Replace the mask.
const SIG_SETMASK: c_int = 2;

/// `sigset_t` of the C libraries for Linux.
#[repr(C, align(8))]
struct SignalSet([u8; 128]);

// SAFETY: the declarations are those of POSIX.
unsafe extern "C" {
    fn sigfillset(set: *mut SignalSet) -> c_int;
    fn sigdelset(set: *mut SignalSet, signal: c_int) -> c_int;
    fn pthread_sigmask(how: c_int, set: *const SignalSet, old: *mut SignalSet) -> c_int;
}

/// Starts a thread that takes no signals from outside.
///
/// # Errors
///
/// If the system has no thread left.
pub fn start<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let mut blocked = MaybeUninit::<SignalSet>::uninit();
    let mut before = MaybeUninit::<SignalSet>::uninit();
    // SAFETY: the first call fills the set, the others take a filled one. The last writes the mask of
    // this thread.
    let is_blocked = unsafe {
        sigfillset(blocked.as_mut_ptr());
        for signal in RAISED {
            sigdelset(blocked.as_mut_ptr(), signal.as_raw());
        }
        pthread_sigmask(SIG_SETMASK, blocked.as_ptr(), before.as_mut_ptr()) == 0
    };
    // A thread begins with the mask of the one that starts it.
    let thread = Builder::new().name(name.to_owned()).spawn(run);
    if is_blocked {
        // SAFETY: the mask was filled by the call that succeeded.
        unsafe { pthread_sigmask(SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
    }
    thread
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn blocked() -> u64 {
        let status = fs::read_to_string("/proc/thread-self/status").unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap()
    }

    #[test]
    fn a_thread_takes_no_signals_and_the_caller_takes_its_own() {
        let before = blocked();
        let within = start("quiet", blocked).unwrap().join().unwrap();
        assert_eq!(blocked(), before);
        let has = |signal: Signal| within >> (signal.as_raw() - 1) & 1 == 1;
        for signal in [Signal::TERM, Signal::INT, Signal::CHILD, Signal::USR1, Signal::ALARM] {
            assert!(has(signal), "{signal:?}");
        }
        assert!(RAISED.into_iter().all(|signal| !has(signal)));
    }
}
