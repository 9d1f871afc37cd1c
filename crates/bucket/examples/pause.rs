//! How long a store stops a program with private memory: comparing, and copying what differs. The agent
//! of this example reads nothing.
//!
//! Run: `cargo run --release -p strongroom-bucket --example pause -- 1024` (MiB)
#![expect(clippy::disallowed_methods, reason = "an example is a program")]
#![expect(clippy::print_stdout, reason = "printing is what this example is for")]

use std::error::Error;
use std::path::Path;
use std::ptr::NonNull;
use std::thread;
use std::time::Instant;

use strongroom_bucket::served::{Listener, Received};
use strongroom_bucket::{Bucket, FromProgram, PROTOCOL, ToProgram};

const PAGE_BYTES: usize = 16 << 10;

fn main() -> Result<(), Box<dyn Error>> {
    let mib: usize = std::env::args().nth(1).map_or(Ok(256), |argument| argument.parse())?;
    let socket = std::env::temp_dir().join(format!("pause-{}.sock", std::process::id()));
    let listener = Listener::bind(&socket, 0o600)?;
    let agent = thread::spawn(move || attend(&listener));
    measure(&socket, mib << 20)?;
    agent.join().map_err(|_| "the agent panicked")?;
    Ok(())
}

fn measure(socket: &Path, bytes: usize) -> Result<(), Box<dyn Error>> {
    let mut memory: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8 + 1).collect();
    let bucket = Bucket::open(Some(socket), "pause", 0)?;
    let address = NonNull::new(memory.as_mut_ptr()).ok_or("no memory")?;
    // SAFETY: the memory outlives the bucket, and this thread alone uses it, between stores.
    unsafe { bucket.private_region("memory", address, bytes)? };
    let mut version = 0;
    let mut store = |what: &str| -> Result<(), Box<dyn Error>> {
        version += 1;
        let begin = Instant::now();
        bucket.store("pause", version)?;
        let seconds = begin.elapsed().as_secs_f64();
        println!("{what:24} {:8.1} ms {:6.2} GB/s", seconds * 1e3, bytes as f64 / seconds / 1e9);
        Ok(())
    };
    store("all of it is new")?;
    store("nothing changed")?;
    for page in (0..bytes / PAGE_BYTES).step_by(20) {
        // SAFETY: the page is within the memory, and no store is under way.
        unsafe { address.add(page * PAGE_BYTES).write(0) };
    }
    store("5 % of the pages changed")?;
    memory.fill(0);
    store("all of it is zero now")?;
    Ok(())
}

/// Takes one program, and says yes to all.
fn attend(listener: &Listener) {
    let Ok(Some(connection)) = listener.accept(None) else { return };
    while let Ok(Received::Message(message, _file)) = connection.receive(None) {
        let answer = match message {
            FromProgram::Hello { .. } => ToProgram::Welcome { protocol: PROTOCOL },
            FromProgram::Region { request, .. } => ToProgram::Done { request },
            FromProgram::Store { request, .. } => ToProgram::Captured { request },
            _ => continue,
        };
        if connection.send(&answer).is_err() {
            return;
        }
    }
}
