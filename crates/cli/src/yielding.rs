//! Leaving the processors to others: to the guests of a machine whose disks are read.
//!
//! A low `nice` value is not enough. Linux lets a thread that runs finish its slice of some
//! milliseconds before a more important one that has just woken gets the processor, and a guest's
//! write wakes several threads of QEMU, one after another. Threads of the policy `SCHED_IDLE` have
//! to go at once. Measured: `docs/design/0032-live-machines.md`.

/// As long as it lives, this thread, and those that it starts, run when no other wants to. What the
/// system refuses is done without.
pub struct Yielding(());

impl Yielding {
    /// Begins to yield.
    pub fn begin() -> Self {
        set_policy(libc::SCHED_IDLE);
        Self(())
    }
}

impl Drop for Yielding {
    fn drop(&mut self) {
        set_policy(libc::SCHED_OTHER);
    }
}

/// Sets the policy of this thread; its `nice` value stays. Both policies want the priority 0.
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
        let yielding = Yielding::begin();
        assert_eq!(policy(), libc::SCHED_IDLE);
        assert_eq!(std::thread::spawn(policy).join().unwrap(), libc::SCHED_IDLE);
        drop(yielding);
        assert_eq!(policy(), libc::SCHED_OTHER);
    }
}
