//! Commands that are run and not measured, files that are counted, and what goes wrong with both.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What went wrong, for the person who runs the harness.
#[derive(Debug)]
pub enum Failure {
    /// The system refused something.
    Io {
        /// What was being done.
        what: String,
        /// Why it was refused.
        error: io::Error,
    },
    /// A command ended badly.
    Command {
        /// The command.
        line: String,
        /// The end of what it said.
        said: String,
    },
    /// Something else, in a sentence.
    Other(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { what, error } => write!(f, "cannot {what}: {error}"),
            Self::Command { line, said } => write!(f, "`{line}` failed: {said}"),
            Self::Other(what) => f.write_str(what),
        }
    }
}

/// A result of something that may fail.
pub type Done<T = ()> = Result<T, Failure>;

/// Says what was being done when the system refused.
pub trait Doing<T> {
    /// `what` completes "cannot …".
    fn doing(self, what: impl fmt::Display) -> Done<T>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, what: impl fmt::Display) -> Done<T> {
        self.map_err(|error| Failure::Io { what: what.to_string(), error })
    }
}

/// A command as a value: it can be printed, compared and run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invocation {
    /// The program: a path, or a name to be searched for.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Variables besides those inherited.
    pub environment: Vec<(&'static str, OsString)>,
    /// Where it is run, if that matters.
    pub folder: Option<PathBuf>,
    /// Whether what it prints is content, and not kept.
    pub prints_content: bool,
}

impl Invocation {
    /// A program without arguments.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            folder: None,
            prints_content: false,
        }
    }

    /// A line for `sh`, whose `$1`, `$2`, … are `paths`.
    pub fn script(line: &str, paths: &[&Path]) -> Self {
        Self::new("sh").args(["-c", line, "sh"]).args(paths)
    }

    /// With one argument more.
    pub fn arg(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// With more arguments.
    pub fn args<A: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// With these variables.
    pub fn with(mut self, environment: Vec<(&'static str, OsString)>) -> Self {
        self.environment = environment;
        self
    }

    /// Run in this folder.
    pub fn inside(mut self, folder: &Path) -> Self {
        self.folder = Some(folder.to_owned());
        self
    }

    /// What is to be started.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        command
    }

    /// Runs it; gives what it prints.
    pub fn run(&self) -> Done<String> {
        let output = self.command().output().doing(format!("run `{self}`"))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = last_lines(&String::from_utf8_lossy(&output.stderr), 5);
        Err(Failure::Command { line: self.to_string(), said })
    }
}

impl fmt::Display for Invocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.program.file_name().unwrap_or_default().to_string_lossy())?;
        for argument in &self.arguments {
            let text = argument.to_string_lossy();
            let is_plain = !text.is_empty() && !text.contains([' ', '\'', '"', '|', '$']);
            if is_plain { write!(f, " {text}")? } else { write!(f, " '{text}'")? }
        }
        Ok(())
    }
}

/// Shorthand for [`Invocation::new`], arguments and [`Invocation::run`].
pub fn run<A: Into<OsString>>(
    program: &str,
    arguments: impl IntoIterator<Item = A>,
) -> Done<String> {
    Invocation::new(program).args(arguments).run()
}

/// The path of a program, in one of `folders` or where programs are searched for.
pub fn find_program(name: &str, folders: &[PathBuf]) -> Option<PathBuf> {
    let searched = std::env::var_os("PATH").unwrap_or_default();
    let all = folders.iter().cloned().chain(std::env::split_paths(&searched));
    all.map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// The last lines of a text, in one line.
pub fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(count)..].join("; ")
}

/// Regular files below a folder and their bytes, as their lengths say.
pub fn count_files(folder: &Path) -> Done<(u64, u64)> {
    let (mut files, mut bytes) = (0, 0);
    walk(folder, &mut |_, metadata| {
        if metadata.is_file() {
            files += 1;
            bytes += metadata.len();
        }
        Ok(())
    })?;
    Ok((files, bytes))
}

/// Paths of the regular files below a folder, from there, sorted.
pub fn list_files(folder: &Path) -> Done<Vec<PathBuf>> {
    let mut paths = Vec::new();
    walk(folder, &mut |path, metadata| {
        if metadata.is_file() {
            let path = path.strip_prefix(folder).expect("the walk stays below its folder");
            paths.push(path.to_owned());
        }
        Ok(())
    })?;
    paths.sort();
    Ok(paths)
}

/// Reads every file below a folder once, so that the next reader finds it in memory.
pub fn warm(folder: &Path) -> Done {
    let mut buffer = vec![0; 1 << 18];
    walk(folder, &mut |path, metadata| {
        if metadata.is_file() {
            let mut file = std::fs::File::open(path)?;
            while file.read(&mut buffer)? > 0 {}
        }
        Ok(())
    })
}

/// Has the kernel drop its cache of files if less than this many bytes of memory are free and this
/// process is allowed to. A program that writes files must otherwise find room among cached files
/// that are no longer needed: a copy of 1.3 GB took 7 seconds after ten others and 11 after twenty.
pub fn have_memory_free(bytes: u64) {
    if free_memory() < bytes {
        rustix::fs::sync();
        let _ = std::fs::write("/proc/sys/vm/drop_caches", "1");
    }
}

/// Fills this many bytes of memory, or as many as are free, and gives them back. A virtual machine
/// that returns free memory to its host pays for it when it is next touched, which would be in the
/// next measurement: a copy of 2 GiB took 1.5 seconds or 5. Programs of their own do it, because
/// the kernel counts a parent's memory as its child's.
pub fn touch_memory(bytes: u64) -> Done {
    const SPARE: u64 = 1 << 30;
    let bytes = bytes.min(free_memory().saturating_sub(SPARE));
    if bytes == 0 {
        return Ok(());
    }
    let half = (bytes / 2).to_string();
    let fill = "dd if=/dev/zero of=/dev/null bs=\"$1\" count=1 iflag=fullblock";
    Invocation::script(&format!("{fill} & {fill}; wait"), &[Path::new(&half)]).run().map(drop)
}

/// Bytes of memory that are unused, even by a cache; 0 if that is not known.
fn free_memory() -> u64 {
    let known = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let free = known.lines().find_map(|line| line.strip_prefix("MemFree:")?.strip_suffix("kB"));
    free.and_then(|kib| kib.trim().parse::<u64>().ok()).map_or(0, |kib| kib << 10)
}

/// Removes a folder with all that is in it, if it exists.
pub fn remove(folder: &Path) -> Done {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result.doing(format!("remove {}", folder.display())),
    }
}

/// Makes a folder, and those above it.
pub fn make_folder(folder: &Path) -> Done {
    std::fs::create_dir_all(folder).doing(format!("make {}", folder.display()))
}

/// Writes a file, with the folders above it.
pub fn write(path: &Path, content: impl AsRef<[u8]>) -> Done {
    if let Some(folder) = path.parent() {
        make_folder(folder)?;
    }
    std::fs::write(path, content).doing(format!("write {}", path.display()))
}

/// Bytes that can still be written on the file system of a folder.
pub fn free_bytes(folder: &Path) -> Done<u64> {
    let stat = rustix::fs::statvfs(folder).map_err(io::Error::from);
    let stat = stat.doing(format!("look at the file system of {}", folder.display()))?;
    Ok(stat.f_bavail * stat.f_frsize)
}

type Visit<'v> = dyn FnMut(&Path, &std::fs::Metadata) -> io::Result<()> + 'v;

/// Visits everything below a folder, but not the folder itself; follows no link.
fn walk(folder: &Path, visit: &mut Visit<'_>) -> Done {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        visit_folder(&folder, &mut folders, visit).doing(format!("read {}", folder.display()))?;
    }
    Ok(())
}

fn visit_folder(
    folder: &Path,
    folders: &mut Vec<PathBuf>,
    visit: &mut Visit<'_>,
) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let metadata = std::fs::symlink_metadata(&path)?;
        visit(&path, &metadata)?;
        if metadata.is_dir() {
            folders.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invocations_are_told_as_one_would_type_them() {
        let invocation = Invocation::new("/opt/bin/restic").args(["backup", "--tag", "a b"]);
        assert_eq!(invocation.to_string(), "restic backup --tag 'a b'");
        assert_eq!(Invocation::script("cat \"$1\"", &[Path::new("x")]).arguments.len(), 4);
    }

    #[test]
    fn a_command_that_fails_says_why() {
        let failure = run("sh", ["-c", "echo no; echo because >&2; exit 3"]).unwrap_err();
        assert!(failure.to_string().ends_with("failed: because"), "{failure}");
        assert_eq!(run("echo", ["yes"]).unwrap(), "yes\n");
    }

    #[test]
    fn files_are_counted_and_listed() {
        let folder = std::env::temp_dir().join(format!("bench-shell-{}", std::process::id()));
        write(&folder.join("b/c"), "four").unwrap();
        write(&folder.join("a"), "").unwrap();
        assert_eq!(count_files(&folder).unwrap(), (2, 4));
        assert_eq!(list_files(&folder).unwrap(), [PathBuf::from("a"), PathBuf::from("b/c")]);
        warm(&folder).unwrap();
        remove(&folder).unwrap();
        remove(&folder).unwrap();
        assert!(!folder.exists());
    }
}
