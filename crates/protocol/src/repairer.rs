//! A repair of an arena: in its place, or by a rescue into its next generation.

use crate::scope::Scope;
use crate::set::Set;
use crate::store::{Fate, GENERATIONS, Op};
use crate::world::World;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
enum At {
    /// About to read an arena.
    #[default]
    Read,
    /// Has read it, and is about to look whether it is still wanted.
    Look {
        arena: u8,
        generation: u8,
        slots: Set,
    },
    /// About to write the same bytes.
    Put {
        arena: u8,
        generation: u8,
        slots: Set,
    },
    /// About to create the next generation.
    Rescue {
        arena: u8,
        generation: u8,
        slots: Set,
    },
    Stopped,
}

/// What it does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// Reads this arena.
    Read(u8),
    /// Looks whether the arena is there, and not dead.
    Look,
    /// Decides that parity is not enough.
    Rescue,
    Send(Fate),
}

/// Repairs one arena.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Repairer {
    at: At,
}

impl Repairer {
    /// The name of its present step, for the report of a path.
    pub fn place(&self) -> String {
        format!("{:?}", self.at)
    }

    /// All that it may do next.
    pub fn steps(&self, world: &World, offer: &mut dyn FnMut(Step)) {
        match self.at {
            At::Stopped => {}
            At::Read => {
                let there = (0..2).filter(|arena| world.store.newest(*arena).is_some());
                there.map(Step::Read).for_each(offer);
            }
            At::Look { .. } => {
                offer(Step::Look);
                offer(Step::Rescue);
            }
            At::Put { .. } | At::Rescue { .. } => {
                world.fates().iter().copied().map(Step::Send).for_each(offer);
            }
        }
    }

    /// Takes one of the steps.
    pub fn take(&mut self, step: Step, _: &Scope, world: &mut World) {
        self.at = match (step, self.at) {
            (Step::Read(arena), At::Read) => match world.store.newest(arena) {
                Some((generation, slots)) => At::Look { arena, generation, slots },
                None => At::Stopped,
            },
            (Step::Look, At::Look { arena, generation, slots }) => {
                let is_there = world.store.generation(arena, generation).is_some();
                let is_dead = world.store.verdicts().any(|verdict| {
                    verdict.gone.has(arena)
                        || verdict.rewritten[usize::from(arena)] == Some(generation)
                });
                if is_there && !is_dead {
                    At::Put { arena, generation, slots }
                } else {
                    At::Stopped
                }
            }
            (Step::Rescue, At::Look { arena, generation, slots })
                if usize::from(generation) + 1 < GENERATIONS =>
            {
                At::Rescue { arena, generation: generation + 1, slots }
            }
            (Step::Rescue, _) => At::Stopped,
            (Step::Send(fate), At::Put { arena, generation, slots }) => {
                world.send(Op::PutArena { arena, generation, slots }, fate);
                At::Stopped
            }
            (Step::Send(fate), At::Rescue { arena, generation, slots }) => {
                world.send(Op::CreateArena { arena, generation, slots }, fate);
                At::Stopped
            }
            (step, at) => unreachable!("{step:?} at {at:?}"),
        };
    }
}
