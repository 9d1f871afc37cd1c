//! What goes into packages: manual pages, completions, units.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::help::COMMANDS;
use crate::world::World;

fn pages(world: &World) -> Vec<std::path::PathBuf> {
    let folder = world.path("man");
    fs::create_dir(&folder).unwrap();
    world.say(&format!("manpages {}", folder.display())).exits(0);
    let sections = ["man1", "man5"].map(|section| fs::read_dir(folder.join(section)).unwrap());
    sections.into_iter().flatten().map(|entry| entry.unwrap().path()).collect()
}

fn page(world: &World, name: &str) -> String {
    fs::read_to_string(world.path("man").join(name)).expect(name)
}

#[test]
fn a_folder_for_manual_pages_must_exist() {
    let world = World::empty();
    let folder = world.path("man");
    world.say(&format!("manpages {}", folder.display())).exits(1).warns("folder that exists");
    fs::write(&folder, "a file").unwrap();
    world.say(&format!("manpages {}", folder.display())).exits(1).warns("folder that exists");
}

#[test]
fn every_command_has_a_page_with_every_section() {
    let world = World::empty();
    pages(&world);
    // A second time into the same folder.
    world.say(&format!("manpages {}", world.path("man").display())).exits(0);
    for command in COMMANDS {
        let name = format!("strongroom {command}").trim().replace(' ', "-");
        let text = page(&world, &format!("man1/{name}.1"));
        let sections = [
            "NAME",
            "SYNOPSIS",
            "DESCRIPTION",
            "OPTIONS",
            "EXAMPLES",
            "\"ENVIRONMENT\"",
            "\"FILES\"",
            "\"EXIT STATUS\"",
            "\"SEE ALSO\"",
        ];
        for section in sections {
            let head = format!("\n.SH {section}\n");
            let (_, body) = text.split_once(&head).unwrap_or_else(|| panic!("{name}: {section}"));
            assert!(!body.starts_with(".SH"), "{name}: {section} is empty");
        }
    }
    assert!(page(&world, "man1/strongroom.1").contains(".SH PLACES\n"));
}

#[test]
fn a_synopsis_has_the_arguments_of_options() {
    let world = World::empty();
    pages(&world);
    let text = page(&world, "man1/strongroom-forget.1");
    let (_, synopsis) = text.split_once(".SH SYNOPSIS\n").unwrap();
    let (synopsis, _) = synopsis.split_once(".SH DESCRIPTION").unwrap();
    for part in [
        "[\\fB\\-\\-keep\\-last\\fR\\ \\fICOUNT\\fR]\n",
        "[\\fB\\-n\\fR|\\fB\\-\\-dry\\-run\\fR]\n",
        "[\\fB\\-\\-keep\\-label\\fR\\ \\fITEXT\\fR]...\n",
        "[\\fISNAPSHOT\\fR]...",
    ] {
        assert!(synopsis.contains(part), "no {part} in {synopsis}");
    }
}

#[test]
fn every_variable_of_an_option_is_in_the_manual() {
    let world = World::empty();
    pages(&world);
    let text = page(&world, "man1/strongroom-backup.1");
    let (_, environment) = text.split_once(".SH \"ENVIRONMENT\"").unwrap();
    let help = world.say("backup --help").exits(0).out;
    let words = help.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let variables: Vec<&str> = words.filter(|word| word.starts_with("STRONGROOM_")).collect();
    assert!(variables.len() >= 5, "{variables:?}");
    for variable in variables {
        assert!(environment.contains(&format!("\\fB{variable}\\fR\n")), "{variable}");
    }
}

#[test]
fn man_and_mandoc_find_nothing_wrong_with_any_page() {
    let world = World::empty();
    let pages = pages(&world);
    assert!(pages.len() > COMMANDS.len(), "{}", pages.len());
    for page in &pages {
        assert_eq!(complaints(page), Vec::<String>::new());
    }
    // The judges do judge.
    let wrong = world.path("wrong.1");
    fs::write(&wrong, ".TH WRONG 1\n.SH NAME\nwrong\n.nosuchmacro\n").unwrap();
    assert!(complaints(&wrong).len() >= 2, "{:?}", complaints(&wrong));
}

/// What `man` and `mandoc` say of a page. It has no date: two builds give the same page.
fn complaints(page: &Path) -> Vec<String> {
    let run = |program: &str, args: &[&str]| {
        let output = Command::new(program).args(args).arg(page).output().expect(program);
        [output.stdout, output.stderr].concat()
    };
    let lint = run("mandoc", &["-Tlint", "-Wwarning"]);
    let null = ["--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z"];
    let output = Command::new("man").args(null).arg(page).output().expect("man");
    let text = [lint, output.stderr].concat();
    let lines = String::from_utf8_lossy(&text).into_owned();
    let lines = lines.lines().filter(|line| !line.contains("missing date"));
    lines.map(str::to_owned).collect()
}

#[test]
fn completions_are_valid_for_their_shell() {
    let world = World::empty();
    let text = world.say("completions bash").exits(0).out;
    let file = world.path("completion");
    fs::write(&file, text).unwrap();
    let output = Command::new("bash").arg("-n").arg(&file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
