//! Which entries of a snapshot are wanted: those that match patterns in the syntax of gitignore, over
//! paths as they were on the machine, or those of a list.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::error::SourceError;
use crate::exclude::Patterns;
use crate::options::SourceOptions;

/// The patterns as they were given. Each means what it means in [`SourceOptions::excludes`].
#[derive(Debug, Clone, Default)]
pub struct FilterOptions {
    /// What matches, and what is below it, is wanted; if there is no such pattern, everything is.
    pub includes: Vec<String>,
    /// As `includes`, but upper and lower case do not differ.
    pub iincludes: Vec<String>,
    /// What matches, and what is below it, is not wanted, even if it is included.
    pub excludes: Vec<String>,
    /// As `excludes`, but upper and lower case do not differ.
    pub iexcludes: Vec<String>,
}

/// What is wanted.
#[derive(Debug, Clone)]
pub struct PathFilter(Rule);

#[derive(Debug, Clone)]
enum Rule {
    Patterns {
        includes: Option<Patterns>,
        excludes: Patterns,
    },
    /// What is said of each entry that is wanted, and of each directory above one.
    Exactly(HashMap<PathBuf, Verdict>),
}

/// What a filter says of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is wanted; by patterns, with all that is below it and not excluded.
    Wanted,
    /// It is a directory, and something below it may be wanted.
    OnTheWay,
    /// Neither it nor anything below it is wanted.
    Unwanted,
}

impl PathFilter {
    /// The filter of these patterns; none if there are none.
    ///
    /// # Errors
    /// An invalid pattern.
    pub fn new(options: FilterOptions) -> Result<Option<Self>, SourceError> {
        let FilterOptions { includes, iincludes, excludes, iexcludes } = options;
        let patterns = |excludes, iexcludes| {
            Patterns::new(&SourceOptions { excludes, iexcludes, ..SourceOptions::default() })
        };
        let has_includes = !(includes.is_empty() && iincludes.is_empty());
        if !has_includes && excludes.is_empty() && iexcludes.is_empty() {
            return Ok(None);
        }
        let includes = has_includes.then(|| patterns(includes, iincludes)).transpose()?;
        let excludes = patterns(excludes, iexcludes)?;
        Ok(Some(Self(Rule::Patterns { includes, excludes })))
    }

    /// The filter of these entries alone: of a directory, nothing that it holds. Paths begin with
    /// a slash.
    pub fn exactly(paths: impl IntoIterator<Item = PathBuf>) -> Self {
        let mut verdicts = HashMap::new();
        for path in paths {
            for above in path.ancestors().skip(1) {
                if verdicts.contains_key(above) {
                    break;
                }
                verdicts.insert(above.to_owned(), Verdict::OnTheWay);
            }
            verdicts.insert(path, Verdict::Wanted);
        }
        Self(Rule::Exactly(verdicts))
    }

    /// What is to become of the directory that a walk starts at: it is never excluded itself.
    pub fn judge_top(&self, path: &Path) -> Verdict {
        let includes = match &self.0 {
            Rule::Patterns { includes: Some(includes), .. } => includes,
            Rule::Patterns { includes: None, .. } => return Verdict::Wanted,
            Rule::Exactly(verdicts) => return of_list(verdicts, path),
        };
        match path.ancestors().any(|above| includes.exclude(above, true)) {
            true => Verdict::Wanted,
            false => Verdict::OnTheWay,
        }
    }

    /// What is to become of an entry of a directory about which `above` was said.
    pub fn judge(&self, path: &Path, is_directory: bool, above: Verdict) -> Verdict {
        let (includes, excludes) = match &self.0 {
            Rule::Patterns { includes, excludes } => (includes, excludes),
            Rule::Exactly(verdicts) => return of_list(verdicts, path),
        };
        if above == Verdict::Unwanted || excludes.exclude(path, is_directory) {
            return Verdict::Unwanted;
        }
        match includes {
            Some(includes) if above == Verdict::OnTheWay => {
                if includes.exclude(path, is_directory) {
                    Verdict::Wanted
                } else if is_directory {
                    Verdict::OnTheWay
                } else {
                    Verdict::Unwanted
                }
            }
            _ => Verdict::Wanted,
        }
    }

    /// Whether an entry is wanted, by its absolute path alone.
    pub fn wants(&self, path: &Path, is_directory: bool) -> bool {
        let mut above: Vec<&Path> = path.ancestors().skip(1).collect();
        let top = above.pop().unwrap_or(Path::new("/"));
        let judge = |verdict, directory: &Path| self.judge(directory, true, verdict);
        let verdict = above.into_iter().rev().fold(self.judge_top(top), judge);
        self.judge(path, is_directory, verdict) == Verdict::Wanted
    }
}

fn of_list(verdicts: &HashMap<PathBuf, Verdict>, path: &Path) -> Verdict {
    verdicts.get(path).copied().unwrap_or(Verdict::Unwanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    /// What a walk gets of these files: the wanted ones.
    fn wanted(filter: &PathFilter, files: &[&'static str]) -> Vec<&'static str> {
        let is_wanted = |file: &&&str| filter.wants(Path::new(file), false);
        files.iter().filter(is_wanted).copied().collect()
    }

    #[test]
    fn included_is_what_matches_and_what_is_below() {
        let files = ["/a/x.txt", "/a/docs/y.TXT", "/a/docs/z", "/b/docs", "/b/tmp/w.txt"];
        let check = |options: FilterOptions, expected: &[&str]| {
            let filter = PathFilter::new(options).unwrap().unwrap();
            assert_eq!(wanted(&filter, &files), expected);
        };
        let only = |includes: &[&str]| FilterOptions {
            includes: strings(includes),
            ..FilterOptions::default()
        };
        check(only(&["*.txt"]), &["/a/x.txt", "/b/tmp/w.txt"]);
        check(only(&["docs/"]), &["/a/docs/y.TXT", "/a/docs/z"]);
        check(only(&["/b"]), &["/b/docs", "/b/tmp/w.txt"]);
        check(only(&["docs", "!/b/docs"]), &["/a/docs/y.TXT", "/a/docs/z"]);
        check(
            FilterOptions { iincludes: strings(&["*.txt"]), ..FilterOptions::default() },
            &["/a/x.txt", "/a/docs/y.TXT", "/b/tmp/w.txt"],
        );
        check(FilterOptions { excludes: strings(&["tmp"]), ..only(&["*.txt"]) }, &["/a/x.txt"]);
        check(
            FilterOptions { iexcludes: strings(&["*.Txt", "/b"]), ..FilterOptions::default() },
            &["/a/docs/z"],
        );
    }

    #[test]
    fn of_a_list_only_the_entries_themselves_are_wanted() {
        // A directory that leads to one entry and is another comes before and after it.
        let paths = ["/a/b/c", "/a/b", "/a/d", "/a/d/e/f"].map(PathBuf::from);
        let filter = PathFilter::exactly(paths);
        let judge = |path: &str| filter.judge(Path::new(path), true, Verdict::Wanted);
        for path in ["/a/b", "/a/b/c", "/a/d", "/a/d/e/f"] {
            assert_eq!(judge(path), Verdict::Wanted, "{path}");
        }
        for path in ["/a", "/a/d/e"] {
            assert_eq!(judge(path), Verdict::OnTheWay, "{path}");
        }
        for path in ["/b", "/a/b/d", "/a/b/c/d", "/a/bc"] {
            assert_eq!(judge(path), Verdict::Unwanted, "{path}");
        }
        assert_eq!(filter.judge_top(Path::new("/")), Verdict::OnTheWay);
        assert_eq!(PathFilter::exactly([]).judge_top(Path::new("/")), Verdict::Unwanted);
    }

    #[test]
    fn the_top_is_taken_and_its_ancestors_count() {
        let options = FilterOptions {
            includes: strings(&["/home/me"]),
            excludes: strings(&["/home/me/docs"]),
            ..FilterOptions::default()
        };
        let filter = PathFilter::new(options).unwrap().unwrap();
        assert_eq!(filter.judge_top(Path::new("/home/me/docs")), Verdict::Wanted);
        assert_eq!(filter.judge_top(Path::new("/home")), Verdict::OnTheWay);
        assert!(PathFilter::new(FilterOptions::default()).unwrap().is_none());
        let wrong = FilterOptions { includes: strings(&["a["]), ..FilterOptions::default() };
        assert!(PathFilter::new(wrong).is_err());
    }
}
