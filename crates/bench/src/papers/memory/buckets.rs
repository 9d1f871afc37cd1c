//! Tables 1 and 2 of the paper, and its figure 4: buckets of its sizes, and one of 4 GiB, stored by the
//! program into a repository on a disk.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::Value;
use strongroom_source::memory::mark::Marker;
use strongroom_testkit::Random;

use super::detectors::{Sha1, Signature, seconds};
use crate::peers::Scale;
use crate::shell::{Doing, Done, Failure, Invocation, make_folder, remove};
use crate::table::row;

/// What the first table shows.
pub const WORDS: &str = "\
A bucket is a file of shared memory, nine tenths of it full of records (half noise, half text), stored by \
`strongroom ram store` into a repository on a disk. *Write* is to write the same bytes to a file of that disk \
and flush it. Milliseconds. Then nothing changes (0 %); then records of 5 % of the bucket are added behind the \
others, as the paper does; then as many anywhere are overwritten. Signatures and SHA-1 are of one thread, over \
the bucket in memory; each store takes what the program takes to start and to open the repository.
";
/// What the second one shows.
pub const FIGURE_4: &str = "\
The bucket of 393 MB, divided among servers: processes of one machine that begin at the same time, each with \
a repository of its own. Seconds until the last has ended; this machine has two processors.
";

/// Megabytes of the paper's buckets, and 4 GiB.
const BUCKETS_MB: [f64; 6] = [1.88, 2.7, 17.6, 158.0, 393.0, 4294.967296];
/// What the paper took in milliseconds, a megabyte of signatures: nearly the same for all sizes.
const PAPER_MS_A_MB: [f64; 5] = [24.46, 28.8, 24.88, 25.74, 27.9];
const SERVERS: [usize; 4] = [1, 2, 3, 4];

/// Both tables.
pub struct Measured {
    /// Tables 1 and 2.
    pub rows: Vec<Vec<String>>,
    /// Figure 4.
    pub servers: Vec<Vec<String>>,
}

/// Makes and stores the buckets.
pub fn measure(program: &Path, folder: &Path, scale: Scale) -> Done<Measured> {
    let mut rows = vec![row([
        "bucket, MB",
        "signatures",
        "a MB",
        "paper, a MB",
        "marks",
        "SHA-1",
        "write",
        "store all",
        "0 %",
        "5 % added",
        "5 % overwritten",
        "marks of write",
        "gain, 0 %",
        "gain, 5 %",
    ])];
    let count = scale.pick(3, BUCKETS_MB.len());
    for (number, megabytes) in BUCKETS_MB[..count].iter().enumerate() {
        let bytes = (megabytes * 1e6) as usize;
        let bucket = Bucket::make(bytes)?;
        let server = Server::new(program, folder, number)?;
        let ms = |seconds: f64| format!("{:.1}", 1000.0 * seconds);
        let signatures = seconds(&Signature, &bucket.content);
        let marks = seconds(&Marker { seed: 1 }, &bucket.content);
        let sha1 = seconds(&Sha1, &bucket.content);
        let write = write_to(&folder.join("written"), &bucket.content)?;
        let all = server.store(&[&bucket.path])?;
        let none = server.store(&[&bucket.path])?;
        bucket.add(bytes / 20)?;
        let added = server.store(&[&bucket.path])?;
        bucket.overwrite(bytes / 20)?;
        let overwritten = server.store(&[&bucket.path])?;
        let gain = |seconds: f64| format!("{:.0} %", 100.0 * (1.0 - seconds / all));
        let paper = PAPER_MS_A_MB.get(number).map_or("–".to_owned(), |ms| ms.to_string());
        rows.push(row([
            format!("{megabytes:.2}"),
            ms(signatures),
            format!("{:.3}", 1000.0 * signatures / megabytes),
            paper,
            ms(marks),
            ms(sha1),
            ms(write),
            ms(all),
            ms(none),
            ms(added),
            ms(overwritten),
            format!("{:.0} %", 100.0 * marks / write),
            gain(none),
            gain(added),
        ]));
    }
    Ok(Measured { rows, servers: servers(program, folder, scale)? })
}

fn servers(program: &Path, folder: &Path, scale: Scale) -> Done<Vec<Vec<String>>> {
    let bytes = (scale.pick(17.6, 393.0) * 1e6) as usize;
    let mut rows = vec![row(["servers", "store all", "0 %", "5 % added"])];
    for count in SERVERS {
        let parts: Vec<(Bucket, Server)> = (0..count)
            .map(|number| Ok((Bucket::make(bytes / count)?, Server::new(program, folder, number)?)))
            .collect::<Done<_>>()?;
        let together = || -> Done<f64> {
            let begun = Instant::now();
            std::thread::scope(|scope| {
                let stores: Vec<_> = parts
                    .iter()
                    .map(|(bucket, server)| scope.spawn(|| server.store(&[&bucket.path])))
                    .collect();
                let mut ended = stores.into_iter().map(|store| store.join().expect("it stores"));
                ended.try_for_each(|result| result.map(|_| ()))
            })?;
            Ok(begun.elapsed().as_secs_f64())
        };
        let (all, none) = (together()?, together()?);
        for (bucket, _) in &parts {
            bucket.add(bytes / count / 20)?;
        }
        let added = together()?;
        let text = |seconds: f64| format!("{seconds:.2}");
        rows.push(row([count.to_string(), text(all), text(none), text(added)]));
    }
    Ok(rows)
}

/// A bucket in shared memory, which is gone when this is dropped.
struct Bucket {
    path: PathBuf,
    content: Vec<u8>,
}

impl Bucket {
    fn make(bytes: usize) -> Done<Self> {
        static NUMBER: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("strongroom-bench-{}-{number}", std::process::id());
        let path = Path::new("/dev/shm").join(name);
        let mut content = records(number, bytes / 10 * 9);
        content.resize(bytes, 0);
        fs::write(&path, &content).doing("make a bucket in /dev/shm")?;
        Ok(Self { path, content })
    }

    /// Adds records behind the others.
    fn add(&self, bytes: usize) -> Done {
        self.write(&records(7, bytes), self.content.len() as u64 / 10 * 9)
    }

    /// Overwrites records anywhere, of the paper's 19 kB each.
    fn overwrite(&self, bytes: usize) -> Done {
        const RECORD: usize = 18_800;
        let mut random = Random::new(5);
        for _ in 0..bytes.div_ceil(RECORD) {
            let at = random.below((self.content.len() - RECORD) as u64);
            self.write(&random.noise(RECORD), at)?;
        }
        Ok(())
    }

    fn write(&self, bytes: &[u8], at: u64) -> Done {
        let file = File::options().write(true).open(&self.path).doing("open a bucket")?;
        file.write_all_at(bytes, at).doing("change a bucket")
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Bytes that are noise in turn with text.
fn records(seed: u64, bytes: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut records = Vec::with_capacity(bytes);
    while records.len() < bytes {
        records.extend(random.noise(512));
        let mut text = String::new();
        while text.len() < 512 {
            text.push_str(&format!("field {}; ", random.below(1000)));
        }
        records.extend(&text.as_bytes()[..512]);
    }
    records.truncate(bytes);
    records
}

/// A repository of its own, and the program that stores into it.
struct Server<'p> {
    program: &'p Path,
    folder: PathBuf,
}

impl<'p> Server<'p> {
    fn new(program: &'p Path, folder: &Path, number: usize) -> Done<Self> {
        let folder = folder.join(format!("server-{number}"));
        remove(&folder)?;
        make_folder(&folder)?;
        let server = Self { program, folder };
        server.call(&["key".into(), "generate".into(), server.key()])?;
        server.call(&["init".into()])?;
        Ok(server)
    }

    fn key(&self) -> PathBuf {
        self.folder.join("key")
    }

    /// Stores buckets; gives how many seconds that took.
    fn store(&self, buckets: &[&Path]) -> Done<f64> {
        let begun = Instant::now();
        let mut words: Vec<PathBuf> = vec!["ram".into(), "store".into()];
        words.extend(buckets.iter().map(|bucket| bucket.to_path_buf()));
        let said = self.call(&words)?;
        let seconds = begun.elapsed().as_secs_f64();
        let events = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut summaries = events.filter(|event| event["event"] == "summary");
        let none = || Failure::Other("strongroom printed no summary".to_owned());
        let summary = summaries.next().ok_or_else(none)?;
        assert_eq!(summary["guarantee"], "bytes", "no process writes to a bucket");
        Ok(seconds)
    }

    fn call(&self, words: &[PathBuf]) -> Done<String> {
        let environment = vec![
            ("STRONGROOM_REPOSITORY", self.folder.join("repository").into()),
            ("STRONGROOM_CACHE", self.folder.join("cache").into()),
            ("STRONGROOM_PASSWORD_FILE", self.key().into()),
        ];
        Invocation::new(self.program).with(environment).arg("--json").args(words).run()
    }
}

impl Drop for Server<'_> {
    fn drop(&mut self) {
        let _ = remove(&self.folder);
    }
}

/// Writes a file to the medium; gives how many seconds that took.
fn write_to(path: &Path, content: &[u8]) -> Done<f64> {
    let begun = Instant::now();
    let mut file = File::create(path).doing("make a file to write to")?;
    file.write_all(content).doing("write a file")?;
    file.sync_all().doing("flush a file")?;
    let seconds = begun.elapsed().as_secs_f64();
    fs::remove_file(path).doing("remove a file")?;
    Ok(seconds)
}
