//! Leaving the processors to others: to the guests of a machine whose disks are read.
//!
//! A low `nice` value is not enough. Linux lets a thread that runs finish its slice of some
//! milliseconds before a more important one that has just woken gets the processor, and a guest's
//! write wakes several threads of QEMU, one after another. Threads of the policy `SCHED_IDLE` have
//! to go at once; but to be made to go takes time as well, so half of the processors are left alone.
//! Measured: `docs/design/0032-live-machines.md`.

use std::collections::BTreeMap;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Does work on a thread that, with those that it starts, runs when no other wants to, and on half
/// of the processors. This thread waits for it and stays as it is: without rights, a thread cannot
/// go back. What the system refuses is done without.
pub fn yielding<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let yielding = || {
        set_policy(libc::SCHED_IDLE);
        if let Ok(processors) = sched_getaffinity(None) {
            let _ = sched_setaffinity(None, &half_of(&processors));
        }
        work()
    };
    let done = std::thread::scope(|scope| scope.spawn(yielding).join());
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Does work on this thread, and on those that it starts, as others do, although the thread yields.
/// What the system refuses is done without.
pub fn urgently<T>(work: impl FnOnce() -> T) -> T {
    let yields = policy() == libc::SCHED_IDLE;
    let processors = sched_getaffinity(None);
    if yields {
        set_policy(libc::SCHED_OTHER);
        // Those that this process must not have are left out by the system.
        let mut all = CpuSet::new();
        (0..CpuSet::MAX_CPU).for_each(|processor| all.set(processor));
        let _ = sched_setaffinity(None, &all);
    }
    let done = work();
    if yields {
        set_policy(libc::SCHED_IDLE);
        let _ = processors.map(|processors| sched_setaffinity(None, &processors));
    }
    done
}

/// Whether the system lets a thread that yields be as others again.
pub fn can_be_urgent() -> bool {
    let is_urgent = || urgently(|| policy() != libc::SCHED_IDLE);
    yielding(is_urgent)
}

/// How much of the processors' time is taken, in processors: of half of them, half.
pub fn share_of_processors() -> f64 {
    let own = sched_getaffinity(None).map(|processors| half_of(&processors).count());
    f64::from(own.unwrap_or(1)) / 2.0
}

/// The last half of these processors, by cores; the only one, if there is one.
fn half_of(processors: &CpuSet) -> CpuSet {
    let all: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|it| processors.is_set(*it)).collect();
    let mut cores: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    all.iter().for_each(|processor| cores.entry(core_of(*processor)).or_default().push(*processor));
    let mut half = *processors;
    match cores.len() {
        1 => all.iter().take(all.len() / 2).for_each(|left_alone| half.unset(*left_alone)),
        several => cores.values().take(several / 2).flatten().for_each(|left_alone| {
            half.unset(*left_alone);
        }),
    }
    half
}

/// The first of the processors that are one core with this one.
fn core_of(processor: usize) -> usize {
    let path = format!("/sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list");
    let list = std::fs::read_to_string(path).unwrap_or_default();
    let first = list.split([',', '-']).next().and_then(|first| first.trim().parse().ok());
    first.unwrap_or(processor)
}

fn policy() -> libc::c_int {
    // SAFETY: the function takes a number.
    unsafe { libc::sched_getscheduler(0) }
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
        let before = policy();
        let (here, below) = yielding(|| (policy(), std::thread::spawn(policy).join().unwrap()));
        assert_eq!((here, below), (libc::SCHED_IDLE, libc::SCHED_IDLE));
        assert_eq!(policy(), before);
        let nested = yielding(|| (urgently(policy), policy()));
        let urgent = if can_be_urgent() { before } else { libc::SCHED_IDLE };
        assert_eq!(nested, (urgent, libc::SCHED_IDLE));
    }

    #[test]
    fn half_of_the_processors_are_left_alone() {
        let set = |processors: &[usize]| {
            let mut set = CpuSet::new();
            processors.iter().for_each(|processor| set.set(*processor));
            set
        };
        assert_eq!(half_of(&set(&[3])), set(&[3]));
        assert_eq!(half_of(&set(&[0, 1])), set(&[1]));
        assert_eq!(half_of(&set(&[1, 4, 7])), set(&[4, 7]));
        let here = sched_getaffinity(None).unwrap();
        let within = || sched_getaffinity(None).unwrap();
        let found = yielding(|| (within(), std::thread::spawn(within).join().unwrap()));
        assert_eq!(found, (half_of(&here), half_of(&here)));
        assert_eq!(within(), here);
    }
}
