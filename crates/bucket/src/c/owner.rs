//! The callbacks of a program in C.

use std::ffi::{c_int, c_void};

use crate::callbacks::Owner;

/// What a program in C does when the agent asks: `struct sr_callbacks`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Callbacks {
    /// Returns 0 once the program holds still.
    pub quiesce: Option<unsafe extern "C" fn(*mut c_void) -> c_int>,
    /// Lets it go on.
    pub resume: Option<unsafe extern "C" fn(*mut c_void)>,
    /// Frees the memory and returns 0.
    pub evict: Option<unsafe extern "C" fn(*mut c_void) -> c_int>,
    /// Handed to each of them.
    pub context: *mut c_void,
    /// Looks at what was loaded, and returns 0 if it is of use.
    pub loaded: Option<unsafe extern "C" fn(*mut c_void) -> c_int>,
}

/// An owner in C.
pub struct Foreign(pub Callbacks);

// SAFETY: the header says that the callbacks are called with their context from another thread.
unsafe impl Send for Foreign {}

impl Owner for Foreign {
    fn quiesce(&mut self) -> Result<(), String> {
        self.call(self.0.quiesce, "holds not still now")
    }

    fn resume(&mut self) {
        if let Some(resume) = self.0.resume {
            // SAFETY: the header asks for a function that takes this context.
            unsafe { resume(self.0.context) };
        }
    }

    fn loaded(&mut self) -> Result<(), String> {
        self.call(self.0.loaded, "cannot use what was loaded")
    }

    fn evict(&mut self) -> Result<(), String> {
        if self.0.evict.is_none() {
            return Err("the program has no callback `evict`, so it keeps its memory".to_owned());
        }
        self.call(self.0.evict, "keeps its memory")
    }
}

impl Foreign {
    /// Calls a callback, if there is one.
    fn call(
        &self,
        callback: Option<unsafe extern "C" fn(*mut c_void) -> c_int>,
        refusal: &str,
    ) -> Result<(), String> {
        let Some(callback) = callback else { return Ok(()) };
        // SAFETY: the header asks for functions that take this context.
        match unsafe { callback(self.0.context) } {
            0 => Ok(()),
            code => Err(format!("the program {refusal} (its callback returned {code})")),
        }
    }
}
