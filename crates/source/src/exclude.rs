//! Exclude patterns: gitignore syntax over the absolute paths of the machine.

use std::path::{Path, PathBuf};

use ignore::gitignore::{Gitignore, GitignoreBuilder};

use crate::error::SourceError;
use crate::options::SourceOptions;

/// The patterns of the options, ready to be matched.
#[derive(Debug, Clone)]
pub struct Patterns(Gitignore);

impl Patterns {
    pub(crate) fn new(options: &SourceOptions) -> Result<Self, SourceError> {
        let mut builder = GitignoreBuilder::new("/");
        builder.allow_unclosed_class(false);
        add_all(&mut builder, &options.excludes, &options.exclude_files)?;
        // It says how the patterns are read that come after it.
        builder.case_insensitive(true).map_err(unlikely)?;
        add_all(&mut builder, &options.iexcludes, &options.iexclude_files)?;
        builder.build().map(Self).map_err(unlikely)
    }

    /// True if a path is excluded. The walker asks about its ancestors.
    pub fn exclude(&self, path: &Path, is_directory: bool) -> bool {
        !self.0.is_empty() && self.0.matched(path, is_directory).is_ignore()
    }
}

/// Each pattern was valid by itself.
fn unlikely(error: ignore::Error) -> SourceError {
    let reason = error.to_string();
    SourceError::Pattern { file: None, line: 0, pattern: String::new(), reason }
}

fn add_all(
    builder: &mut GitignoreBuilder,
    patterns: &[String],
    files: &[PathBuf],
) -> Result<(), SourceError> {
    for (place, pattern) in patterns.iter().enumerate() {
        add(builder, None, place + 1, pattern)?;
    }
    for file in files {
        let text = std::fs::read(file)
            .map_err(|error| SourceError::io("read the exclude file", file, error))?;
        for (place, line) in text.split(|&byte| byte == b'\n').enumerate() {
            let line = std::str::from_utf8(line).map_err(|_| SourceError::Pattern {
                file: Some(file.clone()),
                line: place + 1,
                pattern: String::from_utf8_lossy(line).into_owned(),
                reason: "it is not UTF-8".to_owned(),
            })?;
            add(builder, Some(file), place + 1, line.trim_end_matches('\r'))?;
        }
    }
    Ok(())
}

fn add(
    builder: &mut GitignoreBuilder,
    file: Option<&PathBuf>,
    line: usize,
    pattern: &str,
) -> Result<(), SourceError> {
    let wrong = |reason: String| SourceError::Pattern {
        file: file.cloned(),
        line,
        pattern: pattern.to_owned(),
        reason,
    };
    if let Some(rest) = pattern.trim_start_matches('!').strip_prefix("./") {
        return Err(wrong(format!("it would match nothing; write {rest:?}, or an absolute path")));
    }
    let floating = float(pattern);
    match builder.add_line(None, floating.as_deref().unwrap_or(pattern)) {
        Ok(_) => Ok(()),
        Err(ignore::Error::Glob { err, .. }) => Err(wrong(err)),
        Err(error) => Err(wrong(error.to_string())),
    }
}

/// Git anchors a pattern that has a slash inside; here only a leading slash anchors it.
fn float(pattern: &str) -> Option<String> {
    let (negation, body) = match pattern.strip_prefix('!') {
        Some(body) => ("!", body),
        None => ("", pattern),
    };
    let anchored = body.starts_with('/') || body.starts_with("**/") || body.starts_with('#');
    let inside = body.trim_end().trim_end_matches('/').contains('/');
    (inside && !anchored).then(|| format!("{negation}**/{body}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patterns(lines: &[&str]) -> Result<Patterns, SourceError> {
        let excludes = lines.iter().map(|line| (*line).to_owned()).collect();
        Patterns::new(&SourceOptions { excludes, ..SourceOptions::default() })
    }

    /// `+` before a path that stays, `-` before an excluded one; a trailing slash is a directory.
    fn check(lines: &[&str], verdicts: &[&str]) {
        let patterns = patterns(lines).unwrap();
        for verdict in verdicts {
            let (sign, path) = verdict.split_at(1);
            let is_directory = path.len() > 1 && path.ends_with('/');
            let excluded = patterns.exclude(Path::new(path.trim_end_matches('/')), is_directory);
            assert_eq!(excluded, sign == "-", "{lines:?}: {verdict}");
        }
    }

    #[test]
    fn a_leading_slash_anchors_and_nothing_else_does() {
        check(&["/var/cache"], &["-/var/cache/", "-/var/cache", "+/srv/var/cache/"]);
        check(&["*.o"], &["-/a.o", "-/x/y/a.o", "+/x/a.oo"]);
        check(&[".cache/thumbs"], &["-/home/me/.cache/thumbs/", "-/.cache/thumbs/", "+/thumbs"]);
        check(&["target/"], &["-/a/target/", "+/a/target"]);
        check(&["a/target/"], &["-/x/a/target/", "+/x/a/target"]);
        check(&["**/a/b"], &["-/a/b", "-/x/a/b"]);
        check(&["/home/*/tmp"], &["-/home/me/tmp", "+/home/me/x/tmp", "+/x/home/me/tmp"]);
        check(&["/home/**/tmp"], &["-/home/me/x/tmp"]);
    }

    #[test]
    fn the_last_match_decides() {
        check(&["*.o", "!keep.o"], &["-/a.o", "+/x/keep.o"]);
        check(&["!x/keep.o", "*.o"], &["-/x/keep.o"]);
        check(&["*.o", "!x/keep.o"], &["+/a/x/keep.o", "-/keep.o"]);
        check(&["# note", "", "\\#odd", "\\!odd"], &["-/#odd", "-/!odd", "+/# note"]);
        check(&["[ab]?", "*.{c,h}"], &["-/ax", "+/cx", "-/x.c"]);
        check(&["# a/b"], &["+/a/b", "+/x/# a/b"]);
    }

    #[test]
    fn upper_and_lower_case_differ_where_they_should() {
        let options = SourceOptions {
            excludes: vec!["*.Tmp".to_owned()],
            iexcludes: vec!["*.ISO".to_owned(), "!keep.iso".to_owned()],
            ..SourceOptions::default()
        };
        let patterns = Patterns::new(&options).unwrap();
        let excluded = |path: &str| patterns.exclude(Path::new(path), false);
        assert!(excluded("/a.Tmp") && excluded("/x/b.iso") && excluded("/B.Iso"));
        assert!(!excluded("/a.tmp") && !excluded("/KEEP.ISO"));
    }

    #[test]
    fn a_wrong_pattern_is_named() {
        for line in ["a[", "./x", "!./x"] {
            let error = patterns(&["ok", line]).unwrap_err();
            assert!(
                matches!(&error, SourceError::Pattern { file: None, line: 2, pattern, .. } if pattern == line),
                "{error}"
            );
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("list");
        std::fs::write(&file, "ok\r\n# a [ comment\na[\n").unwrap();
        let options =
            SourceOptions { exclude_files: vec![file.clone()], ..SourceOptions::default() };
        let text = Patterns::new(&options).unwrap_err().to_string();
        assert!(text.starts_with(&format!("{}:3: ", file.display())), "{text}");
        std::fs::remove_file(&file).unwrap();
        let error = Patterns::new(&options).unwrap_err();
        assert_eq!(error.path(), Some(file.as_path()));
    }
}
