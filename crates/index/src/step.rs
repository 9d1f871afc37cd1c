//! Called before every change to the directory, so that a test can let the process "crash" there.

#[cfg(not(test))]
use std::io;

/// Allows one more change.
#[cfg(not(test))]
#[expect(clippy::unnecessary_wraps, reason = "fails in tests")]
pub(crate) fn step() -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
pub(crate) use faults::step;

#[cfg(test)]
pub(crate) mod faults {
    //! Crashes after a number of changes: every later change fails, as if the process had ended.

    use std::cell::Cell;
    use std::io;

    thread_local! {
        static STEPS_LEFT: Cell<Option<usize>> = const { Cell::new(None) };
    }

    /// Allows this many changes from now on; `None` allows all.
    pub(crate) fn allow(steps: Option<usize>) {
        STEPS_LEFT.set(steps);
    }

    pub(crate) fn step() -> io::Result<()> {
        match STEPS_LEFT.get() {
            None => Ok(()),
            Some(0) => Err(io::Error::other("crashed")),
            Some(left) => {
                STEPS_LEFT.set(Some(left - 1));
                Ok(())
            }
        }
    }
}
