//! What the kernel counts of this process: CPU time, memory, bytes read and written.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::Result;

/// How often the sampler looks.
const SAMPLE: Duration = Duration::from_millis(10);

/// What this process has used so far.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// Of all threads, in user and kernel mode.
    pub cpu_seconds: f64,
    /// Fetched from the medium: what the page cache had is not in it.
    pub read_bytes: u64,
    /// Given to the system to write, whether it reached the medium or was overwritten before.
    pub written_bytes: u64,
}

/// What this process has used so far.
pub fn usage() -> Result<Usage> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    // Behind the name, which may hold anything: state is field 3, times are 14 and 15.
    let behind = stat.rsplit_once(')').ok_or("/proc/self/stat has no name")?.1;
    let fields: Vec<&str> = behind.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
    let ticks = ticks(11).zip(ticks(12)).ok_or("/proc/self/stat has no times")?;
    let ticks_per_second = rustix::param::clock_ticks_per_second();
    let io = fs::read_to_string("/proc/self/io")?;
    Ok(Usage {
        cpu_seconds: (ticks.0 + ticks.1) as f64 / ticks_per_second as f64,
        read_bytes: field(&io, "read_bytes")?,
        written_bytes: field(&io, "wchar")?,
    })
}

/// The most memory that was resident at any time, in bytes: files that are mapped included, the
/// page cache not.
pub fn resident_bytes_peak() -> Result<u64> {
    Ok(1024 * field(&fs::read_to_string("/proc/self/status")?, "VmHWM")?)
}

/// The number behind `NAME:` in a file of lines.
fn field(text: &str, name: &str) -> Result<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let number = line.and_then(|line| line.split_whitespace().next());
    Ok(number.ok_or_else(|| format!("the kernel reports no {name}"))?.parse()?)
}

/// Samples how much memory of this process is not that of a file.
pub struct AnonymousPeak {
    stop: Arc<AtomicBool>,
    sampler: JoinHandle<Result<u64>>,
}

impl AnonymousPeak {
    /// Begins to look.
    pub fn begin() -> AnonymousPeak {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let sampler = std::thread::spawn(move || {
            let mut peak = 0;
            loop {
                let last = stopped.load(Ordering::Relaxed);
                peak = peak.max(field(&fs::read_to_string("/proc/self/status")?, "RssAnon")?);
                if last {
                    return Ok(1024 * peak);
                }
                std::thread::sleep(SAMPLE);
            }
        });
        AnonymousPeak { stop, sampler }
    }

    /// The most it has seen, in bytes.
    pub fn end(self) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        self.sampler.join().map_err(|_| "the sampler panicked")?
    }
}

/// Bytes that the files below `folder` take on the medium.
pub fn disk_bytes(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    each_file(folder, &mut |path| {
        // A store in use may remove a file meanwhile.
        bytes += fs::metadata(path).map_or(0, |metadata| metadata.blocks() * 512);
        Ok(())
    })?;
    Ok(bytes)
}

/// Brings the files below `folder` into the page cache.
pub fn warm(folder: &Path) -> Result<()> {
    each_file(folder, &mut |path| {
        std::io::copy(&mut fs::File::open(path)?, &mut std::io::sink())?;
        Ok(())
    })
}

/// Drops the files below `folder` from the page cache.
pub fn cool(folder: &Path) -> Result<()> {
    each_file(folder, &mut |path| {
        let file = fs::File::open(path)?;
        file.sync_all()?;
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
        Ok(())
    })
}

fn each_file(folder: &Path, visit: &mut dyn FnMut(&Path) -> Result<()>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            each_file(&entry.path(), visit)?;
        } else {
            visit(&entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_tells() {
        let sampler = AnonymousPeak::begin();
        let memory = vec![1u8; 64 << 20];
        std::thread::sleep(4 * SAMPLE);
        let anonymous = sampler.end().unwrap();
        assert!(anonymous > memory.len() as u64, "{anonymous}");
        assert!(resident_bytes_peak().unwrap() >= anonymous);

        let before = usage().unwrap();
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("below")).unwrap();
        fs::write(folder.path().join("below/file"), vec![7; 100_000]).unwrap();
        let after = usage().unwrap();
        assert!(after.written_bytes >= before.written_bytes + 100_000);
        assert!((100_000..200_000).contains(&disk_bytes(folder.path()).unwrap()));
        cool(folder.path()).unwrap();
        warm(folder.path()).unwrap();
    }

    #[test]
    fn a_field_is_found() {
        let text = "VmHWM:\t  1234 kB\nRssAnon:   5 kB\n";
        assert_eq!(field(text, "RssAnon").unwrap(), 5);
        assert!(field(text, "Rss").is_err());
    }
}
