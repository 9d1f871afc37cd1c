//! Imports between the files of one folder form no circle.
//!
//! Cargo keeps the arrows between crates pointing down; inside a crate nothing does. A file and
//! the folder of its submodules count as one, and a submodule may use what its parent defines:
//! only siblings are compared. Names are followed through `use`, so an import from `lib.rs` leads
//! to the file that defines the item. Calls of methods are not seen.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::Finding;
use crate::rust::{Kind, Token, product_code};
use crate::tree::Tree;

/// The names that lead to a module from the crate's root, which has none.
type Place<'t> = Vec<&'t str>;

/// A file of a crate.
struct Module<'t> {
    file: &'t str,
    /// Paths that its code names, each with its line.
    paths: Vec<(Place<'t>, usize)>,
    /// What its `use` declarations bring into scope, by name.
    names: BTreeMap<&'t str, Place<'t>>,
}

type Modules<'t> = BTreeMap<Place<'t>, Module<'t>>;

/// One sibling imports from another.
#[derive(Debug, Clone)]
struct Import {
    file: String,
    line: usize,
}

/// By folder: which sibling imports from which, and where it does.
type Imports<'t> = BTreeMap<Place<'t>, BTreeMap<&'t str, BTreeMap<&'t str, Import>>>;

/// No folder has a circle.
pub fn imports_form_no_circle(tree: &Tree) -> Vec<Finding> {
    let folders = source_folders(tree);
    folders.iter().flat_map(|folder| circles(&read_modules(tree, folder))).collect()
}

/// The folders that hold a `lib.rs` or `main.rs`.
fn source_folders(tree: &Tree) -> BTreeSet<String> {
    let roots = ["/lib.rs", "/main.rs"].into_iter();
    let files = roots.flat_map(|name| tree.files(name).map(move |(path, _)| (path, name)));
    let folders = files.filter_map(|(path, name)| path.strip_suffix(name));
    folders.filter(|folder| folder.ends_with("/src")).map(str::to_owned).collect()
}

fn read_modules<'t>(tree: &'t Tree, folder: &str) -> Modules<'t> {
    let mut modules = Modules::new();
    for (file, text) in tree.files(".rs") {
        let Some(path) = file.strip_prefix(folder).and_then(|path| path.strip_prefix('/')) else {
            continue;
        };
        let mut place: Place = path.trim_end_matches(".rs").split('/').collect();
        if place.contains(&"tests") {
            continue;
        }
        if place == ["lib"] || place == ["main"] {
            place.clear();
        }
        modules.insert(place, read_module(file, text));
    }
    modules
}

fn read_module<'t>(file: &'t str, text: &'t str) -> Module<'t> {
    let code = product_code(text);
    let mut module = Module { file, paths: Vec::new(), names: BTreeMap::new() };
    let mut at = 0;
    while at < code.len() {
        if code[at].is("use") {
            at = read_use(&code, at + 1, &Vec::new(), &mut module);
        } else {
            at = read_path(&code, at, &mut module);
        }
    }
    module
}

/// Reads a tree of imports below `prefix`; returns the place behind it.
fn read_use<'t>(
    code: &[Token<'t>],
    mut at: usize,
    prefix: &Place<'t>,
    module: &mut Module<'t>,
) -> usize {
    let mut path = prefix.clone();
    while let Some(token) = code.get(at) {
        at += 1;
        if token.is("{") {
            while code.get(at).is_some_and(|token| !token.is("}")) {
                at = read_use(code, at, &path, module);
                at += usize::from(code.get(at).is_some_and(|token| token.is(",")));
            }
            return at + 1;
        }
        if token.kind == Kind::Word {
            path.push(token.text);
        }
        let next = code.get(at);
        if next.is_some_and(|next| next.is("as")) {
            if let Some(alias) = code.get(at + 1) {
                module.names.insert(alias.text, path.clone());
            }
            module.paths.push((path, token.line));
            return at + 2;
        }
        if next.is_none_or(|next| next.is(",") || next.is(";") || next.is("}")) {
            // `use a::{self}` names `a`.
            if path.len() > 1 && path.last() == Some(&"self") {
                path.pop();
            }
            if let Some(name) = path.last().filter(|_| !token.is("*")) {
                module.names.insert(name, path.clone());
            }
            module.paths.push((path, token.line));
            return at;
        }
    }
    at
}

/// Reads `a::b::c` in code; returns the place behind it, or behind one other token.
fn read_path<'t>(code: &[Token<'t>], mut at: usize, module: &mut Module<'t>) -> usize {
    let begin = at;
    let mut path = Place::new();
    while let Some(token) = code.get(at).filter(|token| token.kind == Kind::Word) {
        path.push(token.text);
        at += 1;
        let goes_on = code.get(at).is_some_and(|token| token.is("::"))
            && code.get(at + 1).is_some_and(|token| token.kind == Kind::Word);
        if !goes_on {
            break;
        }
        at += 1;
    }
    let is_member = begin > 0 && (code[begin - 1].is(".") || code[begin - 1].is("::"));
    if path.len() > 1 && !is_member {
        module.paths.push((path, code[begin].line));
    }
    at.max(begin + 1)
}

/// The module that holds what `path` names, seen from `from`; none outside of the crate.
fn resolve<'t>(
    modules: &Modules<'t>,
    from: &[&'t str],
    path: &[&'t str],
    depth: u32,
) -> Option<Place<'t>> {
    let (&first, mut rest) = path.split_first()?;
    let mut at = from.to_vec();
    match first {
        "crate" => at.clear(),
        "self" => {}
        "super" => drop(at.pop()?),
        name if modules.contains_key(&[from, &[name]].concat()) => at.push(name),
        name => {
            let named = modules.get(from)?.names.get(name)?;
            let depth = depth.checked_sub(1)?;
            return resolve(modules, from, &[named, rest].concat(), depth);
        }
    }
    while let Some((&name, behind)) = rest.split_first() {
        if name == "super" {
            at.pop()?;
        } else if modules.contains_key(&[&at[..], &[name]].concat()) {
            at.push(name);
        } else {
            let named = modules.get(&at).and_then(|module| module.names.get(name));
            let follow = |named: &Place<'t>| {
                resolve(modules, &at, &[named, behind].concat(), depth.checked_sub(1)?)
            };
            return named.and_then(follow).or(Some(at));
        }
        rest = behind;
    }
    Some(at)
}

fn imports<'t>(modules: &Modules<'t>) -> Imports<'t> {
    const DEPTH_MAX: u32 = 8;
    let mut imports = Imports::new();
    for (place, module) in modules {
        for (path, line) in &module.paths {
            let Some(target) = resolve(modules, place, path, DEPTH_MAX) else { continue };
            let common = place.iter().zip(&target).take_while(|(one, other)| one == other).count();
            // Otherwise one is above the other.
            if let (Some(user), Some(used)) = (place.get(common), target.get(common)) {
                let import = Import { file: module.file.to_owned(), line: *line };
                let folder = imports.entry(place[..common].to_vec()).or_default();
                folder.entry(*user).or_default().entry(*used).or_insert(import);
            }
        }
    }
    imports
}

/// The shortest circle through each file that is in one; each circle once.
fn circles(modules: &Modules) -> Vec<Finding> {
    let mut findings = Vec::new();
    for siblings in imports(modules).values() {
        let mut reported = BTreeSet::new();
        for &start in siblings.keys() {
            let Some(circle) = shortest_circle(siblings, start) else { continue };
            if circle.iter().any(|(user, _)| reported.contains(user)) {
                continue;
            }
            reported.extend(circle.iter().map(|(user, _)| *user));
            let step = |(user, used): &(&str, &str)| {
                format!("{user}:{} imports {used}", siblings[user][used].line)
            };
            let steps: Vec<String> = circle.iter().map(step).collect();
            let Import { file, line } = &siblings[circle[0].0][circle[0].1];
            let what = format!("imports form a circle: {}", steps.join(", "));
            findings.push(Finding::new(file, *line, what));
        }
    }
    findings
}

/// Steps from `start` back to it.
fn shortest_circle<'t>(
    siblings: &BTreeMap<&'t str, BTreeMap<&'t str, Import>>,
    start: &'t str,
) -> Option<Vec<(&'t str, &'t str)>> {
    let mut came_from = BTreeMap::new();
    let mut waiting = VecDeque::from([start]);
    while let Some(user) = waiting.pop_front() {
        for &used in siblings.get(user).into_iter().flat_map(BTreeMap::keys) {
            if used == start {
                let mut steps = vec![(user, used)];
                while let Some(&(before, _)) = steps.last().filter(|(user, _)| *user != start) {
                    steps.push((came_from[before], before));
                }
                steps.reverse();
                return Some(steps);
            }
            if let std::collections::btree_map::Entry::Vacant(place) = came_from.entry(used) {
                place.insert(user);
                waiting.push_back(used);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let tree = Tree::of(files);
        imports_form_no_circle(&tree).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn siblings_that_import_each_other_are_found() {
        let files = [
            ("crates/a/src/lib.rs", "mod x; mod y;\npub use x::{X, Z as Q};\n"),
            ("crates/a/src/x.rs", "use std::fmt;\nuse crate::y::Y;\n"),
            ("crates/a/src/y.rs", "pub struct Y;\nfn f() { crate::Q::new(); }\n"),
        ];
        let circle = "imports form a circle: x:2 imports y, y:2 imports x";
        assert_eq!(found(&files), [format!("crates/a/src/x.rs:2: {circle}")]);
    }

    #[test]
    fn parents_tests_and_other_crates_make_no_circle() {
        assert_eq!(
            found(&[
                ("crates/a/src/main.rs", "mod x; mod y;\nuse x::X;\n"),
                (
                    "crates/a/src/x.rs",
                    "mod z;\nuse z::Z;\nuse base::y::Y;\n#[cfg(test)]\nuse crate::y::Y;"
                ),
                ("crates/a/src/x/z.rs", "use super::X;\nuse super::super::y::Y;\n"),
                ("crates/a/src/x/tests.rs", "use crate::y::Y;\n"),
                ("crates/a/src/y.rs", "// use crate::x::X;\n"),
                ("crates/b/src/lib.rs", "mod x;"),
            ]),
            [""; 0]
        );
    }

    #[test]
    fn a_longer_circle_leads_through_submodules() {
        let found = found(&[
            ("crates/a/src/lib.rs", ""),
            ("crates/a/src/x.rs", "mod z;"),
            ("crates/a/src/x/z.rs", "use crate::{w, y::{self, Y}};\nfn f() { w::g(); }\n"),
            ("crates/a/src/y.rs", "use super::w;\n"),
            ("crates/a/src/w.rs", "use crate::x::*;\n"),
        ]);
        let circle = "w:1 imports x, x:1 imports w";
        assert_eq!(found, [format!("crates/a/src/w.rs:1: imports form a circle: {circle}")]);
    }
}
