//! Which parts of a tree are wanted.

use std::path::PathBuf;

use crate::file_system::FileSystem;
use crate::foreign::ForeignRoot;
use crate::inode::InodeId;

/// What is left out of a walk. By default nothing is, and nothing is left out implicitly.
///
/// A path that was given to [`TreeSource::open`](crate::TreeSource::open) is always taken itself:
/// these rules apply to what is below the given paths.
#[derive(Debug, Clone, Default)]
pub struct SourceOptions {
    /// Patterns in the syntax of gitignore; the last that matches decides, and `!` includes again.
    ///
    /// A pattern with a leading `/` is an absolute path of the machine (`/var/cache`); any other
    /// matches at every depth, also when it has a slash inside (`.cache/thumbnails`). With a
    /// trailing `/` it matches directories only. What is below an excluded directory is never
    /// visited, so `!` cannot include it again. `{a,b}` matches either. Upper and lower case
    /// differ.
    pub excludes: Vec<String>,
    /// Files with such a pattern on each line; blank lines and lines that begin with `#` are
    /// ignored. They come after [`excludes`](Self::excludes), in this order.
    pub exclude_files: Vec<PathBuf>,
    /// As [`excludes`](Self::excludes), but upper and lower case do not differ; after all of those.
    pub iexcludes: Vec<String>,
    /// Files with such patterns; they come last.
    pub iexclude_files: Vec<PathBuf>,
    /// A directory that holds a file of one of these names is kept without its content.
    pub exclude_if_present: Vec<Vec<u8>>,
    /// A directory with a `CACHEDIR.TAG` of the right signature is kept with only this tag.
    pub cachedir_tag: bool,
    /// Other file systems are not entered: the directories they are mounted on, bind mounts
    /// included, are kept without their content.
    pub one_file_system: bool,
    /// Longer files are left out.
    pub file_bytes_max: Option<u64>,
    /// Directories that are kept without their content, under any name. A repository is kept from
    /// storing itself by this rule, so it alone applies to given paths too.
    pub skip_inodes: Vec<InodeId>,
    /// A directory that shows a tree of another machine, and that is taken for `/`: all below it is
    /// walked, and no path is looked for. Numbers of inodes and devices mean nothing there, nor do
    /// this machine's names of users and groups.
    pub root: Option<ForeignRoot>,
    /// What the metadata of all files is taken to prove; else each file system is asked. For tests.
    pub file_system: Option<FileSystem>,
}
