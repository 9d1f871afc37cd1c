//! The file with the profiles: read, with those that it includes, and checked.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use strongroom_base::Printable;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::DEFAULT;
use super::setting::{Position, Setting, Value, at_home};
use super::trust;
use crate::exit::{CliError, Exit};
use crate::passphrase;

/// Files that a file may include, one within the other.
const INCLUDES_MAX: usize = 16;
/// The table of a profile with variables.
const ENVIRONMENT: &str = "environment";
/// A longer file is none with profiles.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// All profiles of a file, and of those that it includes.
#[derive(Debug, Default)]
pub struct Profiles {
    by_name: BTreeMap<String, Profile>,
    /// The files that were read.
    files: BTreeSet<PathBuf>,
}

/// A profile.
#[derive(Debug, Clone)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// Where it begins.
    pub position: Position,
    /// The profile whose settings it takes over.
    extends: Option<(String, Position)>,
    /// Options of every command.
    global: Vec<Setting>,
    /// Variables that it sets.
    variables: Vec<(String, String)>,
    /// Options of one command, by its name, and where its section begins.
    sections: BTreeMap<String, (Position, Vec<Setting>)>,
}

/// The text of a file, and where it is.
struct Text {
    path: Arc<Path>,
    text: String,
    is_readable_by_others: bool,
}

impl Text {
    fn at(&self, offset: usize) -> Position {
        let before = &self.text[..self.text.floor_char_boundary(offset)];
        let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        Position { file: self.path.to_path_buf(), line, column }
    }
}

/// What is wrong at a place of a file, and what to do about it.
pub fn wrong(
    position: &Position,
    what: impl std::fmt::Display,
    hint: impl Into<String>,
) -> CliError {
    CliError::new(Exit::Failed, format!("{position}: {what}"), hint)
}

impl Profiles {
    /// Those of a file.
    pub fn read(path: &Path) -> Result<Self, CliError> {
        let mut all = Self::default();
        all.add(path, &mut Vec::new(), None)?;
        Ok(all)
    }

    /// Their names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    /// A profile.
    pub fn get(&self, name: &str) -> Result<&Profile, CliError> {
        self.by_name.get(name).ok_or_else(|| {
            let known: Vec<&str> = self.names().collect();
            let hint = match nearest(name, &known) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("there are these: {}", known.join(", ")),
            };
            let name = Printable::text(name);
            CliError::new(Exit::Failed, format!("there is no profile `{name}`"), hint)
        })
    }

    /// What a profile says about a command, before what it says about all, and the profile before those that it
    /// extends. Where the passphrase is, is one thing with several names: what comes first says it alone.
    pub fn settings(&self, name: &str, command: &str) -> Result<Vec<&Setting>, CliError> {
        let mut settings: Vec<&Setting> = Vec::new();
        let mut has_passphrase = false;
        for profile in self.chain(name)? {
            let section = profile.sections.get(command).map(|(_, settings)| settings);
            for level in [section, Some(&profile.global)].into_iter().flatten() {
                let is_said = |setting: &Setting| {
                    settings.iter().any(|known| known.name == setting.name)
                        || (has_passphrase && setting.is_passphrase())
                };
                let new: Vec<_> = level.iter().filter(|setting| !is_said(setting)).collect();
                has_passphrase |= new.iter().any(|setting| setting.is_passphrase());
                settings.extend(new);
            }
            has_passphrase |= profile.variables.iter().any(is_passphrase);
        }
        Ok(settings)
    }

    /// The commands that a profile has sections about, and where these begin.
    pub fn sections(&self, name: &str) -> Result<BTreeMap<&str, &Position>, CliError> {
        let chain = self.chain(name)?.into_iter().rev();
        let sections = chain.flat_map(|profile| &profile.sections);
        Ok(sections.map(|(command, (position, _))| (command.as_str(), position)).collect())
    }

    /// The variables that a profile sets, those of the profile before those that it extends. The first profile
    /// with variables for the passphrase says it alone.
    pub fn variables(&self, name: &str) -> Result<Vec<(String, String)>, CliError> {
        let mut variables: Vec<(String, String)> = Vec::new();
        for profile in self.chain(name)? {
            let has_passphrase = variables.iter().any(is_passphrase);
            let is_said = |variable: &(String, String)| {
                variables.iter().any(|(known, _)| *known == variable.0)
                    || (has_passphrase && is_passphrase(variable))
            };
            let new = profile.variables.iter().filter(|variable| !is_said(variable)).cloned();
            let new: Vec<_> = new.collect();
            variables.extend(new);
        }
        Ok(variables)
    }

    /// What a profile says about an option of every command.
    pub fn values(&self, name: &str, option: &str) -> Result<Vec<String>, CliError> {
        let chain = self.chain(name)?;
        let mut settings = chain.iter().flat_map(|profile| &profile.global);
        Ok(match settings.find(|setting| setting.name == option).map(|setting| &setting.value) {
            Some(Value::Words(words)) => words.clone(),
            _ => Vec::new(),
        })
    }

    /// Whether a profile says where its repository is.
    pub fn names_repository(&self, name: &str) -> bool {
        self.values(name, "repo").is_ok_and(|values| !values.is_empty())
    }

    /// Whether another profile takes over what this one says.
    pub fn is_extended(&self, name: &str) -> bool {
        let bases = self.by_name.values().filter_map(|profile| profile.extends.as_ref());
        bases.into_iter().any(|(base, _)| base == name)
    }

    /// A profile, and those that it extends.
    fn chain(&self, name: &str) -> Result<Vec<&Profile>, CliError> {
        let mut chain = vec![self.get(name)?];
        while let Some((base, position)) = chain.last().and_then(|last| last.extends.as_ref()) {
            let known: Vec<&str> = self.names().collect();
            let profile = self.by_name.get(base).ok_or_else(|| {
                wrong(position, format_args!("there is no profile `{base}`"), meant(base, &known))
            })?;
            if chain.iter().any(|seen| seen.name == profile.name) {
                let what = format!("the profile `{base}` extends itself");
                return Err(wrong(position, what, "leave out one `extends`"));
            }
            chain.push(profile);
        }
        Ok(chain)
    }

    /// Adds the profiles of a file, and of those that it includes. `from` is what includes it.
    fn add(
        &mut self,
        path: &Path,
        within: &mut Vec<PathBuf>,
        from: Option<&Position>,
    ) -> Result<(), CliError> {
        let failed = |error: std::io::Error| {
            let message = format!("cannot read the profiles in {}: {error}", Printable::path(path));
            let hint = "`strongroom profile init` writes an example";
            match from {
                Some(from) => wrong(from, message, "write a file that exists, or leave it out"),
                None => CliError::new(Exit::Failed, message, hint),
            }
        };
        let named = path;
        let path = path.canonicalize().map_err(failed)?;
        if within.contains(&path) || within.len() == INCLUDES_MAX {
            let message = format!("{} includes itself", Printable::path(&path));
            return Err(CliError::new(Exit::Failed, message, "leave out one `include`"));
        }
        if !self.files.insert(path.clone()) {
            return Ok(());
        }
        let text = read(named, &path)?;
        let table = DeTable::parse(&text.text).map_err(|error| {
            let at = text.at(error.span().map_or(0, |span| span.start));
            wrong(&at, error.message(), "it is written in TOML: https://toml.io")
        })?;
        for (name, value) in table.get_ref() {
            let at = text.at(name.span().start);
            match (name.get_ref().as_ref(), value.get_ref()) {
                ("include", value) => {
                    within.push(path.clone());
                    for file in words(value).ok_or_else(|| {
                        wrong(&at, "`include` is a list of files", "write include = [\"FILE\"]")
                    })? {
                        let file = at_home(&file);
                        self.add(&path.with_file_name(file), within, Some(&at))?;
                    }
                    within.pop();
                }
                (name, DeValue::Table(table)) => {
                    let profile = Profile::parse(name, at.clone(), table, &text)?;
                    if let Some(other) = self.by_name.insert(name.to_owned(), profile) {
                        let what =
                            format!("a second profile `{name}`; {} is the first", other.position);
                        return Err(wrong(&at, what, "give one of them another name"));
                    }
                }
                (name, _) => {
                    let what = format!("`{name}` is outside of a profile");
                    return Err(wrong(&at, what, format!("write it below a line [{DEFAULT}]")));
                }
            }
        }
        Ok(())
    }
}

impl Profile {
    fn parse(
        name: &str,
        position: Position,
        table: &DeTable<'_>,
        text: &Text,
    ) -> Result<Self, CliError> {
        let (name, extends) = (name.to_owned(), None);
        let (global, variables, sections) = (Vec::new(), Vec::new(), BTreeMap::new());
        let mut profile = Self { name, position, extends, global, variables, sections };
        for (key, value) in table {
            let at = text.at(key.span().start);
            match (key.get_ref().as_ref(), value.get_ref()) {
                ("extends", DeValue::String(base)) => {
                    profile.extends = Some((base.to_string(), at))
                }
                (ENVIRONMENT, DeValue::Table(table)) => {
                    for (key, value) in table {
                        profile.variables.push(variable(key, value, text)?);
                    }
                }
                (section, DeValue::Table(table)) => {
                    let settings =
                        table.iter().map(|(key, value)| setting(key, value, Some(section), text));
                    let settings = settings.collect::<Result<_, _>>()?;
                    profile.sections.insert(section.to_owned(), (at, settings));
                }
                _ => profile.global.push(setting(key, value, None, text)?),
            }
        }
        Ok(profile)
    }
}

/// Whether a variable says where the passphrase is.
fn is_passphrase((name, _): &(String, String)) -> bool {
    passphrase::VARIABLES.contains(&&**name)
}

/// A variable of the environment. Its value may be a secret only in a file that others cannot read.
fn variable(
    key: &Spanned<std::borrow::Cow<'_, str>>,
    value: &Spanned<DeValue<'_>>,
    text: &Text,
) -> Result<(String, String), CliError> {
    let (name, at) = (key.get_ref().to_string(), text.at(key.span().start));
    let words = words(value.get_ref()).unwrap_or_default();
    let ([value], false) = (words.as_slice(), name.is_empty() || name.contains(['=', '\0'])) else {
        let what = format!("`{}` is no variable with a text", Printable::text(&name));
        return Err(wrong(&at, what, "write NAME = \"VALUE\""));
    };
    let is_secret =
        ["PASSWORD", "PASSPHRASE", "KEY", "SECRET", "TOKEN"].iter().any(|end| name.ends_with(end));
    if is_secret && text.is_readable_by_others {
        let what = format!("`{name}` is a secret, and others may read this file");
        let path = Printable::path(&text.path);
        let hint = format!("run `chmod 600 {path}`, or write {name}_FILE = \"FILE\"");
        return Err(wrong(&at, what, hint));
    }
    Ok((name, at_home(value)))
}

fn setting(
    key: &Spanned<std::borrow::Cow<'_, str>>,
    value: &Spanned<DeValue<'_>>,
    section: Option<&str>,
    text: &Text,
) -> Result<Setting, CliError> {
    let name = key.get_ref().to_string();
    let position = text.at(key.span().start);
    let written = written(value.get_ref());
    let value = match value.get_ref() {
        DeValue::Boolean(flag) => Some(Value::Flag(*flag)),
        value => words(value).map(Value::Words),
    };
    let value = value.ok_or_else(|| {
        let what = format!("`{name}` has no value that an option can have");
        wrong(&position, what, "write text in quotes, a number, true or false, or a list of these")
    })?;
    Ok(Setting { name, section: section.map(str::to_owned), value, written, position })
}

/// A value as TOML writes it, on one line.
fn written(value: &DeValue<'_>) -> String {
    match value {
        // What JSON writes in quotes, TOML reads.
        DeValue::String(text) => serde_json::json!(text).to_string(),
        DeValue::Boolean(flag) => flag.to_string(),
        DeValue::Array(values) => {
            let values: Vec<String> = values.iter().map(|one| written(one.get_ref())).collect();
            format!("[{}]", values.join(", "))
        }
        value => words(value).unwrap_or_default().concat(),
    }
}

/// A text or a number, or several.
fn words(value: &DeValue<'_>) -> Option<Vec<String>> {
    Some(match value {
        DeValue::String(text) => vec![text.to_string()],
        DeValue::Integer(number) if number.radix() == 10 => vec![number.as_str().to_owned()],
        DeValue::Float(number) => vec![number.as_str().to_owned()],
        DeValue::Datetime(time) => vec![time.to_string()],
        DeValue::Array(values) => {
            let each = values.iter().map(|value| match value.get_ref() {
                DeValue::Array(_) => None,
                value => words(value),
            });
            each.collect::<Option<Vec<_>>>()?.concat()
        }
        _ => return None,
    })
}

/// Reads a file, by its name and by the path that links in it lead to.
fn read(named: &Path, path: &Path) -> Result<Text, CliError> {
    use std::io::Read;
    use std::os::unix::fs::MetadataExt;
    let failed = |error: std::io::Error| {
        let message = format!("cannot read the profiles in {}: {error}", Printable::path(path));
        CliError::new(Exit::Failed, message, "check the file")
    };
    let file = std::fs::File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    trust::check(named, path, &metadata)?;
    let mode = metadata.mode();
    let mut text = String::new();
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        let message = format!("{} is too long for a file with profiles", Printable::path(path));
        return Err(CliError::new(Exit::Failed, message, "check the file"));
    }
    Ok(Text { path: path.into(), text, is_readable_by_others: mode & 0o044 != 0 })
}

/// What to do about a name that is none.
pub fn meant(name: &str, known: &[&str]) -> String {
    match nearest(name, known) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("it may be one of these: {}", known.join(", ")),
    }
}

/// The name that was probably meant.
pub fn nearest<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    let likeness = |one: &&'k str| (strsim::jaro_winkler(name, one) * 1000.0) as u32;
    known.iter().copied().filter(|one| likeness(one) > 800).max_by_key(likeness)
}
