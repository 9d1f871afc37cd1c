//! Which act follows which. A plan is a value: it is printed by `--dry-run`, and carried out by
//! `run.rs`.
//!
//! Contenders take turns act by act, so that what the machine does meanwhile meets all of them;
//! each round begins with another one. Where their repositories do not fit on the disk together,
//! each goes through all acts alone.

use std::fmt;

/// What a plan is made from.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// How the data set is used.
    pub course: Course,
    /// Its versions.
    pub versions: u32,
    /// Whether contenders go one after the other.
    pub apart: bool,
    /// How often all is done.
    pub rounds: u32,
    /// How many contenders there are.
    pub contenders: usize,
    /// How many of them, from the first on, are measured in every round; the others once.
    pub in_every_round: usize,
}

/// How a data set is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Course {
    /// Every act on every version, in every round.
    Whole,
    /// All versions once; in every round the first and the last are restored.
    Long,
}

/// Something measured that a contender does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// The first backup into an empty repository.
    First,
    /// A backup of what did not change.
    Unchanged,
    /// A backup of this version, after the one before.
    Next(u32),
    /// Putting this version into an empty folder.
    Restore(u32),
    /// Reading all that is stored.
    Verify,
    /// Forgetting all but the newest snapshot, and giving its room back.
    Prune,
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::First => f.write_str("first"),
            Self::Unchanged => f.write_str("unchanged"),
            Self::Next(version) => write!(f, "next-{version}"),
            Self::Restore(version) => write!(f, "restore-{version}"),
            Self::Verify => f.write_str("verify"),
            Self::Prune => f.write_str("prune"),
        }
    }
}

/// Something measured that no backup can do without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Floor {
    /// Reading every file.
    Cat,
    /// Asking for every file's metadata.
    Find,
    /// One stream, compressed fast.
    TarOne,
    /// One stream, compressed as most do.
    TarThree,
    /// A copy.
    Copy,
    /// A copy that is on the disk when it is done.
    CopySync,
}

impl Floor {
    /// What it is called in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cat => "cat",
            Self::Find => "find",
            Self::TarOne => "tar-1",
            Self::TarThree => "tar-3",
            Self::Copy => "cp",
            Self::CopySync => "cp-sync",
        }
    }
}

/// One thing after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The steps behind it belong to this round, from 1.
    Round(u32),
    /// The data set is put at this version.
    PutVersion(u32),
    /// A contender gets an empty repository.
    Begin(usize),
    /// A floor is measured.
    Floor(Floor),
    /// A contender is measured.
    Act(usize, Act),
    /// A contender's repository is removed.
    End(usize),
}

/// The steps, in order.
pub fn plan(shape: Shape) -> Vec<Step> {
    match shape.course {
        Course::Long => long(shape),
        Course::Whole => (1..=shape.rounds)
            .flat_map(|round| {
                let order = order(shape, round);
                let acts = if shape.apart { apart(shape, &order) } else { together(shape, &order) };
                [Step::Round(round)].into_iter().chain(acts)
            })
            .collect(),
    }
}

/// Another one begins in each round.
fn order(shape: Shape, round: u32) -> Vec<usize> {
    let contenders = if round == 1 { shape.contenders } else { shape.in_every_round };
    let mut order: Vec<usize> = (0..contenders).collect();
    order.rotate_left((round as usize - 1) % contenders.max(1));
    order
}

const STREAMS: [Floor; 3] = [Floor::Cat, Floor::TarOne, Floor::TarThree];
const COPIES: [Floor; 2] = [Floor::Copy, Floor::CopySync];

fn together(shape: Shape, order: &[usize]) -> Vec<Step> {
    let all = |act: Act| order.iter().map(move |contender| Step::Act(*contender, act));
    let mut steps = vec![Step::PutVersion(1)];
    steps.extend(STREAMS.map(Step::Floor));
    for contender in order {
        steps.extend([Step::Begin(*contender), Step::Act(*contender, Act::First)]);
    }
    steps.push(Step::Floor(Floor::Find));
    steps.extend(all(Act::Unchanged));
    for version in 2..=shape.versions {
        steps.push(Step::PutVersion(version));
        steps.extend(all(Act::Next(version)));
    }
    steps.extend(COPIES.map(Step::Floor));
    for act in [Act::Restore(shape.versions), Act::Verify, Act::Prune] {
        steps.extend(all(act));
    }
    steps.extend(order.iter().map(|contender| Step::End(*contender)));
    steps
}

fn apart(shape: Shape, order: &[usize]) -> Vec<Step> {
    let mut steps = vec![Step::PutVersion(1)];
    steps.extend(STREAMS.map(Step::Floor));
    steps.push(Step::Floor(Floor::Find));
    for contender in order {
        let act = |act: Act| Step::Act(*contender, act);
        steps.extend([Step::PutVersion(1), Step::Begin(*contender)]);
        steps.extend([act(Act::First), act(Act::Unchanged)]);
        for version in 2..=shape.versions {
            steps.extend([Step::PutVersion(version), act(Act::Next(version))]);
        }
        steps.extend([Act::Restore(shape.versions), Act::Verify, Act::Prune].map(act));
        steps.push(Step::End(*contender));
    }
    steps.extend(COPIES.map(Step::Floor));
    steps
}

fn long(shape: Shape) -> Vec<Step> {
    let first = order(shape, 1);
    let mut steps = vec![Step::Round(1), Step::PutVersion(1)];
    for contender in &first {
        steps.extend([Step::Begin(*contender), Step::Act(*contender, Act::First)]);
    }
    for version in 2..=shape.versions {
        steps.push(Step::PutVersion(version));
        steps.extend(first.iter().map(|contender| Step::Act(*contender, Act::Next(version))));
    }
    for round in 1..=shape.rounds {
        steps.push(Step::Round(round));
        steps.extend(COPIES.map(Step::Floor));
        for contender in order(shape, round) {
            let restore = |version| Step::Act(contender, Act::Restore(version));
            steps.extend([restore(1), restore(shape.versions)]);
        }
    }
    steps.extend(first.iter().map(|contender| Step::End(*contender)));
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape {
        course: Course::Whole,
        versions: 3,
        apart: false,
        rounds: 2,
        contenders: 3,
        in_every_round: 3,
    };

    /// What must hold of every plan: a contender acts between its begin and its end, and on the
    /// version that is in place.
    fn check(steps: &[Step], contenders: usize) {
        let mut current = 0;
        let mut stored = vec![None; contenders];
        for step in steps {
            match *step {
                Step::PutVersion(version) => current = version,
                Step::Begin(contender) => {
                    assert_eq!(stored[contender].replace(0), None, "{step:?}");
                }
                Step::End(contender) => assert!(stored[contender].take().is_some(), "{step:?}"),
                Step::Round(_) | Step::Floor(_) => assert!(current > 0 || *step == Step::Round(1)),
                Step::Act(contender, act) => {
                    let newest = stored[contender].as_mut().expect("it has begun");
                    match act {
                        Act::First => assert_eq!((*newest, current), (0, 1)),
                        Act::Next(version) => {
                            assert_eq!((*newest + 1, current), (version, version))
                        }
                        Act::Unchanged => assert_eq!(*newest, current),
                        Act::Restore(version) => assert!(version <= *newest),
                        Act::Verify | Act::Prune => assert!(*newest > 0),
                    }
                    if matches!(act, Act::First | Act::Next(_)) {
                        *newest = current;
                    }
                }
            }
        }
        assert!(stored.iter().all(Option::is_none));
    }

    #[test]
    fn plans_make_sense() {
        for course in [Course::Whole, Course::Long] {
            for apart in [false, true] {
                for (versions, in_every_round) in [(1, 3), (2, 2), (4, 1)] {
                    let shape = Shape { course, apart, versions, in_every_round, ..SHAPE };
                    check(&plan(shape), shape.contenders);
                }
            }
        }
    }

    #[test]
    fn contenders_take_turns_and_another_begins() {
        let firsts = |shape| -> Vec<usize> {
            let of_step = |step: &Step| match step {
                Step::Act(contender, Act::First) => Some(*contender),
                _ => None,
            };
            plan(shape).iter().filter_map(of_step).collect()
        };
        assert_eq!(firsts(SHAPE), [0, 1, 2, 1, 2, 0]);
        let some_once = Shape { in_every_round: 2, rounds: 3, ..SHAPE };
        assert_eq!(firsts(some_once), [0, 1, 2, 1, 0, 0, 1]);
    }

    #[test]
    fn a_long_course_stores_once_and_restores_in_rounds() {
        let steps = plan(Shape { course: Course::Long, versions: 30, ..SHAPE });
        let count = |act| steps.iter().filter(|step| **step == Step::Act(1, act)).count();
        let counts = [Act::First, Act::Next(30), Act::Restore(1), Act::Restore(30), Act::Verify];
        assert_eq!(counts.map(count), [1, 1, 2, 2, 0]);
    }
}
