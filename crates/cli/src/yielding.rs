//! Leaving the processors to others: to the guests of a machine whose disks are read.
//!
//! A low `nice` value is not enough. Linux lets a thread that runs finish its slice of some
//! milliseconds before a more important one that has just woken gets the processor, and a guest's
//! write wakes several threads of QEMU, one after another. Threads of the policy `SCHED_IDLE` have
//! to go at once. Measured: `docs/design/0032-live-machines.md`.

/// Does work on a thread that, with those that it starts, runs when no other wants to. This thread
/// waits for it and stays as it is: without rights, a thread cannot go back. What the system refuses
/// is done without.
pub fn yielding<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let yielding = || {
        set_policy(libc::SCHED_IDLE);
        work()
    };
    let done = std::thread::scope(|scope| scope.spawn(yielding).join());
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Sets the policy of this thread to one that wants the priority 0; its `nice` value stays.
fn set_policy(policy: libc::c_int) {
    // SAFETY: all fields of the structure are numbers, for which zeros are valid.
    let parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a structure that lives during the call, and is only read.
    unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_yield_with_the_one_that_starts_them() {
        // SAFETY: the function takes a number.
        let policy = || unsafe { libc::sched_getscheduler(0) };
        let before = policy();
        let (here, below) = yielding(|| (policy(), std::thread::spawn(policy).join().unwrap()));
        assert_eq!((here, below), (libc::SCHED_IDLE, libc::SCHED_IDLE));
        assert_eq!(policy(), before);
    }
}
