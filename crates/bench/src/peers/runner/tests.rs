//! A plan carried out with tools that only copy, one of which lies.

use super::super::plan::{Course, Shape, plan};
use super::super::tools::Level;
use super::*;
use crate::shell::{remove, write};

/// Keeps each snapshot as a copy.
struct Copier {
    is_liar: bool,
}

impl Tool for Copier {
    fn name(&self) -> &'static str {
        if self.is_liar { "liar" } else { "copier" }
    }

    fn levels(&self, _program: &Path) -> Vec<Level> {
        vec![Level { says: "none", flags: Vec::new(), is_default: true, is_equal: true }]
    }

    fn init(&self, place: &Place) -> Vec<Invocation> {
        vec![Invocation::new("mkdir").arg(place.repository())]
    }

    fn backup(&self, place: &Place, source: &Path, label: &str) -> Invocation {
        let copy = place.repository().join(label);
        Invocation::new("cp").arg("-a").arg(source).arg(copy)
    }

    fn restore(
        &self,
        place: &Place,
        _source: &Path,
        snapshot: &SnapshotLabel,
        target: &Path,
    ) -> Invocation {
        let copy = place.repository().join(&snapshot.label);
        let line = if self.is_liar {
            "cp -a \"$1/.\" \"$2\"; echo x >>\"$2/file\""
        } else {
            "cp -a \"$1/.\" \"$2\""
        };
        Invocation::script(line, &[&copy, target])
    }

    fn verify(&self, place: &Place, _newest: &SnapshotLabel) -> Invocation {
        Invocation::script("find \"$1\" -type f -exec cat {} +", &[&place.repository()])
    }

    fn prune(&self, place: &Place, labels: &[String]) -> Vec<Invocation> {
        let old = &labels[..labels.len() - 1];
        old.iter()
            .map(|label| Invocation::new("rm").arg("-r").arg(place.repository().join(label)))
            .collect()
    }
}

/// Fails when it is asked for anything.
struct Broken;

impl Tool for Broken {
    fn name(&self) -> &'static str {
        "broken"
    }

    fn levels(&self, program: &Path) -> Vec<Level> {
        Copier { is_liar: false }.levels(program)
    }

    fn init(&self, _place: &Place) -> Vec<Invocation> {
        vec![Invocation::new("false")]
    }

    fn backup(&self, _place: &Place, _source: &Path, _label: &str) -> Invocation {
        Invocation::new("false")
    }

    fn restore(
        &self,
        _place: &Place,
        _source: &Path,
        _snapshot: &SnapshotLabel,
        _target: &Path,
    ) -> Invocation {
        Invocation::new("false")
    }

    fn verify(&self, _place: &Place, _newest: &SnapshotLabel) -> Invocation {
        Invocation::new("false")
    }

    fn prune(&self, _place: &Place, _labels: &[String]) -> Vec<Invocation> {
        Vec::new()
    }
}

/// One file that says which version is in place.
struct Numbered(PathBuf);

impl DataSet for Numbered {
    fn about(&self) -> String {
        "a number".to_owned()
    }

    fn make(&mut self) -> Done {
        Ok(())
    }

    fn versions(&self) -> u32 {
        2
    }

    fn at(&self) -> &Path {
        &self.0
    }

    fn put_version(&mut self, version: u32) -> Done {
        write(&self.0.join("file"), format!("version {version}\n").repeat(version as usize))
    }
}

fn run_all(name: &str, apart: bool, tools: Vec<Rc<dyn Tool>>) -> SetResults {
    let folder = std::env::temp_dir().join(format!("bench-run-{name}-{}", std::process::id()));
    let contenders: Vec<Contender> = tools
        .into_iter()
        .map(|tool| {
            let level = tool.levels(Path::new("")).swap_remove(0);
            let place = Place { program: "cp".into(), home: folder.join(tool.name()), level };
            Contender::new(tool.name().to_owned(), tool, place)
        })
        .collect();
    let shape = Shape {
        course: Course::Whole,
        versions: 2,
        apart,
        rounds: 2,
        contenders: contenders.len(),
        in_every_round: contenders.len(),
    };
    let mut set = Numbered(folder.join("at"));
    let results = SetResults { name: name.to_owned(), ..SetResults::default() };
    let (scratch, results_path) = (folder.join("scratch"), folder.join("results"));
    let runner = Runner::new(&mut set, contenders, scratch, results, results_path);
    let results = runner.run(&plan(shape)).unwrap();
    assert_eq!(
        SetResults::load(&folder.join("results")).unwrap().samples.len(),
        results.samples.len()
    );
    remove(&folder).unwrap();
    results
}

#[test]
fn every_act_is_measured_and_counted() {
    for apart in [false, true] {
        let results = run_all(
            if apart { "apart" } else { "together" },
            apart,
            vec![Rc::new(Copier { is_liar: false })],
        );
        // The machine that runs these tests may have no compressor.
        let has_zstd = crate::shell::find_program("zstd", &[]).is_some();
        assert!(results.troubles.iter().all(|trouble| !has_zstd && trouble.contender == FLOOR));
        for act in ["first", "unchanged", "next-2", "restore-2", "verify", "prune"] {
            assert_eq!(results.of("copier", act).count(), 2, "{act}");
        }
        for floor in ["cat", "find", "tar-1", "tar-3", "cp", "cp-sync"] {
            let expected = if floor.starts_with("tar") && !has_zstd { 0 } else { 2 };
            assert_eq!(results.of(FLOOR, floor).count(), expected, "{floor}");
        }
        assert_eq!((&results.files[..], &results.bytes[..]), (&[1, 1][..], &[10, 20][..]));
        let added = |act| results.of("copier", act).next().and_then(|sample| sample.added);
        let expected = [Some(10), Some(10), Some(20), Some(0), Some(-20)];
        assert_eq!(["first", "unchanged", "next-2", "verify", "prune"].map(added), expected);
        let stream = results.of(FLOOR, "tar-1").next().map(|sample| sample.stored);
        assert!(stream.is_none_or(|stored| stored.is_some_and(|bytes| bytes > 0)));
    }
}

#[test]
fn who_lies_is_named_and_who_fails_is_asked_no_more() {
    let tools: Vec<Rc<dyn Tool>> = vec![
        Rc::new(Copier { is_liar: true }),
        Rc::new(Broken),
        Rc::new(Copier { is_liar: false }),
    ];
    let results = run_all("liars", false, tools);
    let found: Vec<(&str, &str, bool)> = results
        .troubles
        .iter()
        .map(|trouble| (&*trouble.contender, &*trouble.act, trouble.is_unequal))
        .collect();
    let expected = [("broken", "init", false), ("liar", "restore-2", true)];
    assert_eq!(found, [expected, expected].concat());
    assert!(results.troubles[1].what.contains("file"), "{:?}", results.troubles[1]);
    assert_eq!(results.of("copier", "verify").count(), 2);
    assert_eq!(results.of("broken", "first").count(), 0);
}
