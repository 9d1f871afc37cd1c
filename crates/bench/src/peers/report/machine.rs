//! Where it was measured.

use std::path::Path;

use crate::shell::run;

/// A machine, as far as it matters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Machine {
    /// Processors that programs see.
    pub cores: usize,
    /// What they are.
    pub processor: String,
    /// Memory, in GiB.
    pub memory_gib: u64,
    /// The kernel's release.
    pub kernel: String,
    /// The file system of data and repositories.
    pub file_system: String,
}

impl Machine {
    /// This one, with data in `folder`.
    pub fn this(folder: &Path) -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let memory = field(&read("/proc/meminfo"), "MemTotal");
        let kib: u64 = memory.trim_end_matches(" kB").parse().unwrap_or_default();
        let folder = folder.to_string_lossy().into_owned();
        let file_system = run("df", ["--output=fstype", &folder]).unwrap_or_default();
        Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            processor: field(&read("/proc/cpuinfo"), "model name"),
            memory_gib: (kib + (1 << 19)) >> 20,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            file_system: file_system.lines().last().unwrap_or_default().trim().to_owned(),
        }
    }

    /// In one sentence.
    pub fn text(&self) -> String {
        format!(
            "Machine: {} cores, {}, {} GiB of memory, Linux {}, data and repositories on {}.",
            self.cores, self.processor, self.memory_gib, self.kernel, self.file_system
        )
    }
}

/// The text behind a name and a colon.
fn field(text: &str, name: &str) -> String {
    let line =
        text.lines().find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':'));
    line.unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found() {
        let text = "processor\t: 0\nmodel name\t: Some CPU @ 2.5 GHz\n";
        assert_eq!(field(text, "model name"), "Some CPU @ 2.5 GHz");
        assert_eq!(field("MemTotal:       100 kB\n", "MemTotal"), "100 kB");
        assert_eq!(field(text, "none"), "");
        assert!(Machine::this(Path::new("/")).text().starts_with("Machine: "));
    }
}
