//! The list against a plain map.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Action {
    Push { arena: ListedArena },
    Finish { at: usize, object_bytes: u64 },
    Drop { at: usize },
    MarkDeltas { at: usize },
    WriteAndRead,
}

fn action() -> impl Strategy<Value = Action> {
    let push = (0u8..80, any::<u32>(), any::<u64>());
    prop_oneof![
        8 => push.prop_map(|(n, generation, object_bytes)| {
            let name = ArenaName { id: id(n), generation };
            Action::Push { arena: ListedArena { name, object_bytes } }
        }),
        3 => any::<usize>().prop_map(|at| Action::Drop { at }),
        2 => (any::<usize>(), any::<u64>())
            .prop_map(|(at, object_bytes)| Action::Finish { at, object_bytes }),
        2 => any::<usize>().prop_map(|at| Action::MarkDeltas { at }),
        1 => Just(Action::WriteAndRead),
    ]
}

fn id(n: u8) -> ArenaId {
    ArenaId([n; 16])
}

/// What the list should be: all arenas that ever existed, and the ordinals of those that still
/// exist.
#[derive(Default)]
struct Model {
    all: Vec<Covered>,
    ordinals: BTreeMap<ArenaId, u32>,
}

impl Model {
    fn push(&mut self, listed: ListedArena) -> u32 {
        let ordinal = self.all.len() as u32;
        self.all.push(Covered::new(listed, true));
        let id = listed.name.id;
        self.ordinals.insert(id, ordinal);
        ordinal
    }

    /// One of those that exist.
    fn choose(&self, at: usize) -> Option<u32> {
        let count = self.ordinals.len().max(1);
        self.ordinals.values().nth(at % count).copied()
    }
}

fn apply(list: &mut Arenas, model: &mut Model, action: &Action) {
    let mut update = |at: usize, change: &dyn Fn(&mut Covered)| {
        let ordinal = model.choose(at)?;
        list.update(ordinal, change);
        change(&mut model.all[ordinal as usize]);
        Some(model.all[ordinal as usize])
    };
    match *action {
        Action::Push { arena } => {
            if !model.ordinals.contains_key(&arena.name.id) {
                let ordinal = model.push(arena);
                assert_eq!(list.push(arena), ordinal);
            }
        }
        Action::Drop { at } => {
            if let Some(covered) = update(at, &|covered| covered.exists = false) {
                model.ordinals.remove(&covered.id);
            }
        }
        Action::Finish { at, object_bytes } => {
            update(at, &|covered| covered.object_bytes = object_bytes);
        }
        Action::MarkDeltas { at } => {
            update(at, &|covered| covered.has_deltas = true);
        }
        Action::WriteAndRead => {
            let orphans: Orphans =
                (0..list.len()).map(|ordinal| (ordinal, u32::from(ordinal == 1) + 7)).collect();
            let note = list.with_note(&orphans, <[u8]>::to_vec);
            let read;
            (*list, read) = Arenas::from_note(note).unwrap();
            assert_eq!(read, orphans);
        }
    }
}

proptest! {
    #[test]
    fn as_a_plain_map(actions in prop::collection::vec(action(), 1..300)) {
        let (mut list, mut model) = (Arenas::default(), Model::default());
        for action in &actions {
            apply(&mut list, &mut model, action);
            prop_assert_eq!(list.len() as usize, model.all.len());
        }
        for n in 0..=80 {
            prop_assert_eq!(list.find(id(n)), model.ordinals.get(&id(n)).copied());
        }
        for (ordinal, covered) in (0..).zip(&model.all) {
            prop_assert_eq!(list.get(ordinal), Some(*covered));
            prop_assert_eq!(list.existing(ordinal).is_some(), covered.exists);
        }
        prop_assert_eq!(list.get(list.len()), None);
        prop_assert!(list.places.len() >= 2 * model.ordinals.len());
    }
}

#[test]
fn what_is_no_note_is_refused() {
    let mut list = Arenas::default();
    let name = ArenaName { id: id(1), generation: 2 };
    list.push(ListedArena { name, object_bytes: 3 });
    let note = list.with_note(&Orphans::from([(0, 3)]), <[u8]>::to_vec);
    assert!(Arenas::from_note(note.clone()).is_some());
    assert!(Arenas::from_note(Vec::new()).is_some());
    for length in (1..note.len()).filter(|length| *length != note.len() - ORPHAN_BYTES) {
        assert!(Arenas::from_note(note[..length].to_vec()).is_none(), "{length}");
    }
    // Another version, more arenas than there are bytes for, an orphan in no arena.
    for (at, value) in [(0, 1), (1, 2), (4, 0xff), (HEAD_BYTES + ARENA_BYTES, 1)] {
        let mut changed = note.clone();
        changed[at] = value;
        assert!(Arenas::from_note(changed).is_none(), "{at}");
    }
}
