//! Images as QEMU's tools make them: their bytes are those that `qemu-img convert` gives, and what
//! is data in them is what `qemu-img map` calls data.

mod bitmaps;
mod chains;
mod foreign;
mod hostile;
mod in_use;
mod qcow2;
mod writer;

use std::ops::Range;
use std::path::{Path, PathBuf};

use strongroom_disk::{Format, Image, ImageError, ImageOptions, OpenedImage, open_image};
use strongroom_testkit::Random;

use crate::world::run;

/// The tools that all tests here need.
const TOOLS: [&str; 2] = ["qemu-img", "qemu-io"];

/// A folder with images.
struct Images(tempfile::TempDir);

impl Images {
    fn new() -> Self {
        Self(crate::world::folder())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The path as an argument.
    fn name(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Makes an image with options of `qemu-img create`.
    fn create(&self, name: &str, format: &str, options: &[&str], size: &str) {
        let path = self.name(name);
        let head = ["create", "-q", "-f", format];
        run("qemu-img", &[&head[..], options, &[&path, size]].concat());
    }

    /// Runs commands of `qemu-io` on an image.
    fn write(&self, name: &str, format: &str, commands: &[String]) {
        let path = self.name(name);
        let mut arguments = vec!["-f", format];
        commands.iter().for_each(|command| arguments.extend(["-c", command]));
        arguments.push(&path);
        let said = run("qemu-io", &arguments);
        assert!(!said.contains("failed"), "{commands:?}: {said}");
    }

    /// Opens an image in the format that is recognised.
    fn open(&self, name: &str) -> OpenedImage {
        let mut opened = open_image(&self.path(name), ImageOptions::default());
        if let Err(ImageError::FormatNotNamed { format, .. }) = opened {
            opened = open_image(&self.path(name), named(format));
        }
        opened.unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// The bytes of the disk as QEMU reads them.
    fn as_qemu_reads(&self, name: &str, format: &str) -> Vec<u8> {
        let raw = self.name("raw of qemu");
        run("qemu-img", &["convert", "-f", format, "-O", "raw", &self.name(name), &raw]);
        std::fs::read(raw).unwrap()
    }

    /// Compares the bytes with those that QEMU reads. What is data is data for QEMU, too; and if the
    /// file itself has no holes, which QEMU does not ask for, it is the same.
    fn judge(&self, name: &str, format: &str, random: &mut Random) {
        let expected = self.as_qemu_reads(name, format);
        let opened = self.open(name);
        assert_eq!(opened.format.name(), format);
        assert_same(&*opened.image, &expected, random, name);
        let (ours, map) = (data_of(&*opened.image), self.map(name, format));
        let is_data = |data: &Range<u64>| {
            map.iter().any(|wide| wide.start <= data.start && data.end <= wide.end)
        };
        assert!(ours.iter().all(is_data), "{name}: {ours:?} and {map:?}");
    }

    /// A copy of a file without holes, on which what is data is compared exactly.
    fn judge_map(&self, name: &str, format: &str) {
        let copy = format!("{name} without holes");
        std::fs::write(self.path(&copy), std::fs::read(self.path(name)).unwrap()).unwrap();
        let image = self.open(&copy).image;
        assert_eq!(data_of(&*image), self.map(&copy, format), "{name}");
    }

    /// What `qemu-img map` calls data.
    fn map(&self, name: &str, format: &str) -> Vec<Range<u64>> {
        let path = self.name(name);
        data_of_map(&run("qemu-img", &["map", "--output=json", "-f", format, &path]))
    }
}

/// Options with the format of the image.
fn named(format: Format) -> ImageOptions {
    ImageOptions { format: Some(format), ..ImageOptions::default() }
}

/// Reads an image as a whole, and at random places in random order.
fn assert_same(image: &dyn Image, expected: &[u8], random: &mut Random, name: &str) {
    assert_eq!(image.size(), expected.len() as u64, "{name}");
    let mut whole = vec![0xaa; expected.len()];
    image.read_at(0, &mut whole).unwrap_or_else(|error| panic!("{name}: {error}"));
    let differs = whole.iter().zip(expected).position(|(ours, theirs)| ours != theirs);
    assert_eq!(differs, None, "{name}: the first byte that differs");
    for _ in 0..if expected.is_empty() { 0 } else { 200 } {
        let from = random.below(expected.len() as u64) as usize;
        let longest = if random.once_in(4) { 1 << 20 } else { 9000 };
        let count = random.below(longest).min((expected.len() - from) as u64) as usize;
        let mut part = vec![0xaa; count];
        image.read_at(from as u64, &mut part).unwrap();
        assert!(part == expected[from..from + count], "{name}: {count} bytes from {from}");
    }
    assert!(image.read_at(expected.len() as u64, &mut [0]).is_err());
    let mut at = 0;
    for data in data_of(image) {
        let hole = &expected[at..data.start as usize];
        assert!(hole.iter().all(|&byte| byte == 0), "{name}: data from {at} on is lost");
        at = data.end as usize;
    }
    assert!(expected[at..].iter().all(|&byte| byte == 0), "{name}: data from {at} on is lost");
}

/// All ranges of data, with those that touch as one.
fn data_of(image: &dyn Image) -> Vec<Range<u64>> {
    let (mut at, mut all) = (0, Vec::new());
    while let Some(data) = image.next_data(at).unwrap() {
        assert!(at <= data.start && data.start < data.end && data.end <= image.size());
        at = data.end;
        push(&mut all, data);
    }
    all
}

fn push(all: &mut Vec<Range<u64>>, next: Range<u64>) {
    match all.last_mut() {
        Some(last) if last.end == next.start => last.end = next.end,
        _ => all.push(next),
    }
}

/// The data of `qemu-img map --output=json`, which prints an object a line.
fn data_of_map(map: &str) -> Vec<Range<u64>> {
    let mut all = Vec::new();
    for line in map.lines() {
        let field = |name: &str| {
            let (_, rest) = line.split_once(&format!("\"{name}\": ")).unwrap();
            rest.split([',', '}']).next().unwrap()
        };
        let start: u64 = field("start").parse().unwrap();
        let end = start + field("length").parse::<u64>().unwrap();
        if field("zero") == "false" && start < end {
            push(&mut all, start..end);
        }
    }
    all
}

/// Commands of `qemu-io` that write here and there: patterns, zeros, discarded ranges, and whole
/// clusters that are compressed, if there is a size of clusters for them. QEMU compresses only what
/// is new, so they come first.
fn scribbles(random: &mut Random, size: u64, compress: Option<u64>, count: usize) -> Vec<String> {
    let mut commands = Vec::new();
    if let Some(cluster) = compress {
        let mut clusters: Vec<u64> = (0..count / 2).map(|_| random.below(size) / cluster).collect();
        clusters.sort_unstable();
        clusters.dedup();
        for start in clusters.into_iter().map(|index| index * cluster) {
            let length = cluster.min(size - start);
            commands.push(format!("write -c -P {} {start} {length}", 1 + random.below(255)));
        }
    }
    for number in 0..count {
        let longest = (size / 8).min(300 << 10) / 512;
        let length = (1 + random.below(longest)) * 512;
        let start = random.below((size - length) / 512 + 1) * 512;
        let byte = 1 + random.below(255);
        commands.push(match random.below(8) {
            0 => format!("write -z {start} {length}"),
            1 => format!("write -z -u {start} {length}"),
            2 => format!("discard {start} {length}"),
            _ if number % 5 == 0 => format!("write -P {byte} {} 512", start / 4096 * 4096),
            _ => format!("write -P {byte} {start} {length}"),
        });
    }
    commands
}

/// A path as a string, for messages.
fn shown(path: &Path) -> String {
    path.display().to_string()
}
