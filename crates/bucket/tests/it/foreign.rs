//! The library in C, dynamic and static, and in Python.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};

use crate::world::{FILE, World, eventually};

/// The folder with the library that Cargo built for this test.
#[expect(clippy::disallowed_methods, reason = "the library is beside the test")]
fn built() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_owned()
}

fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// A folder with the library under the names that an installation gives it.
fn installed(world: &World) -> PathBuf {
    let folder = world.folder().join("lib");
    fs::create_dir(&folder).unwrap();
    let library = built().join("libstrongroom_bucket.so");
    symlink(&library, folder.join("libstrongroom-bucket.so.0")).unwrap();
    symlink(&library, folder.join("libstrongroom-bucket.so")).unwrap();
    folder
}

fn compile(program: &Path, output: &Path, link: &[&str]) {
    let compiled = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-o"])
        .arg(output)
        .arg("-I")
        .arg(source("include"))
        .arg(program)
        .args(link)
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
}

/// Runs a program that says `registered`, lets `meanwhile` happen, and then has it finish.
fn converse(command: &mut Command, meanwhile: impl FnOnce()) {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input: ChildStdin = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut said = Vec::new();
    for line in lines.by_ref() {
        said.push(line.unwrap());
        if said.last().unwrap() == "registered" {
            meanwhile();
            // A program that is gone says so by its output.
            drop(input.write_all(b"go on\n"));
            break;
        }
    }
    said.extend(lines.map(Result::unwrap));
    assert!(child.wait().unwrap().success(), "{said:?}");
    assert_eq!(said, ["registered", "done"]);
}

/// The agent stores once, and is refused the second time.
fn store_twice(world: &World) {
    assert!(world.agent().await_owner(FILE, 3));
    world.agent().store(FILE, 3, "agents", 1).unwrap();
    assert!(world.agent().store(FILE, 3, "agents", 2).is_err());
}

#[test]
fn a_program_in_c_makes_every_call() {
    let world = World::new();
    let folder = installed(&world);
    let dynamic = world.folder().join("dynamic");
    let of_folder = format!("-L{}", folder.display());
    compile(&source("tests/it/programs/calls.c"), &dynamic, &[&of_folder, "-lstrongroom-bucket"]);
    let fixed = world.folder().join("static");
    let library = built().join("libstrongroom_bucket.a");
    let library = library.to_str().unwrap();
    compile(&source("tests/it/programs/calls.c"), &fixed, &[library, "-lpthread", "-ldl", "-lm"]);
    for program in [dynamic, fixed] {
        let mut command = Command::new(program);
        command.env("STRONGROOM_RAM_SOCKET", world.socket()).env("LD_LIBRARY_PATH", &folder);
        converse(&mut command, || {
            store_twice(&world);
            let range = world.agent().range(FILE, 3).unwrap();
            assert_eq!((range.0.low, range.1), (b"a".to_vec(), 2));
        });
        let areas = world.archive.areas(FILE, 3, "evicted", 1).unwrap();
        assert_eq!((areas["heap"].len(), areas["data"].clone()), (50_000, vec![2; 50_000]));
        world.archive.clear();
    }
}

#[test]
fn the_header_is_of_use_in_cpp() {
    let header = source("include/strongroom-bucket.h");
    let mut compiler = Command::new("c++");
    compiler.args(["-std=c++11", "-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only"]);
    let compiled = compiler.args(["-x", "c++"]).arg(header).output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
}

#[test]
fn a_program_in_python_makes_every_call() {
    let world = World::new();
    let folder = installed(&world);
    let mut command = Command::new("python3");
    command
        .arg(source("tests/it/programs/calls.py"))
        .env("PYTHONPATH", source("python"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("STRONGROOM_RAM_SOCKET", world.socket())
        .env("LD_LIBRARY_PATH", &folder);
    converse(&mut command, || store_twice(&world));
    let areas = world.archive.areas(FILE, 3, "evicted", 1).unwrap();
    assert_eq!(areas.len(), 4);
}

#[test]
fn the_example_goes_on_where_it_was_killed() {
    let world = World::new();
    let folder = installed(&world);
    let program = world.folder().join("counter");
    let of_folder = format!("-L{}", folder.display());
    compile(&source("examples/counter.c"), &program, &[&of_folder, "-lstrongroom-bucket"]);
    let run = |steps: &str| {
        let mut command = Command::new(&program);
        command.arg(steps).env("STRONGROOM_RAM_SOCKET", world.socket());
        command.env("LD_LIBRARY_PATH", &folder).stdout(Stdio::piped());
        command.spawn().unwrap()
    };
    let mut first = run("100000000");
    assert!(eventually(|| !world.archive.versions("counter", 0, "steps").is_empty()));
    // By its process: SIGKILL.
    first.kill().unwrap();
    first.wait().unwrap();
    let reached = *world.archive.versions("counter", 0, "steps").last().unwrap();
    let until = reached + 105;
    let second = run(&until.to_string()).wait_with_output().unwrap();
    let said = String::from_utf8(second.stdout).unwrap();
    assert!(second.status.success(), "{said}");
    // What the agent had captured may be committed after the program died.
    let went_on = said.strip_prefix("goes on at step ").and_then(|rest| rest.split_once('\n'));
    let went_on: u64 = went_on.unwrap().0.parse().unwrap();
    assert!(went_on >= reached && went_on < until, "{said}");
    let sum = until * (until + 1) / 2;
    assert!(said.ends_with(&format!("{until} steps, sum {sum}\n")), "{said}");
}
