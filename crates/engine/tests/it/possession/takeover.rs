//! Generations of arenas by a thief who has taken over the machine whose arenas they are, or who writes the
//! domain of others into what it seals; and how a repair is kept from making them the owner's.

use strongroom_arena::Arena;
use strongroom_base::keys::WriteKeys;
use strongroom_base::{DomainId, Fingerprint};

use super::*;

/// What is planted instead of a chunk.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Planted {
    /// Another chunk, under its own name.
    Honest,
    /// Another chunk, under the name of that which is there.
    Lie,
}

fn opened(world: &World, name: ArenaName) -> Arena {
    let owner = world.open();
    let store = owner.arena_store(CacheLimits::default());
    store.open_arena_in(name, &world.objects.snapshot()[&name.object()]).unwrap()
}

/// Creates a generation with the blocks and the slots of an arena, and one slot more, which nothing needs;
/// or, with another number, one block over all of its slots.
fn plant_over(
    keys: &WriteKeys,
    world: &World,
    (of, generation): (&Arena, u32),
    planted: Planted,
    number: Option<u32>,
) -> ArenaName {
    let content = ArenaContent::of(of.id);
    let seed = ArenaSeed::draw(content, keys, &Chosen(of.id));
    let mut builder = ArenaBuilder::new(&seed, Vec::new(), 0);
    let mut sealer = BlockSealer::new(CompressionLevel::DEFAULT);
    let last = of.summary.blocks.len() - 1;
    let blocks = of.summary.blocks.iter().enumerate();
    let mut shapes: Vec<_> = blocks
        .map(|(place, block)| {
            let slots = block.head.slots();
            (block.frame.number, slots.start..slots.end + u32::from(place == last))
        })
        .collect();
    if let Some(number) = number {
        let end = shapes[last].1.end;
        shapes = vec![(number, 0..end.min(30_000))];
    }
    for (number, slots) in shapes {
        let mut draft = BlockDraft::new(number, slots.start);
        let mut named = Vec::new();
        for slot in slots {
            let chunk = [slot.to_le_bytes(), [0x77; 4]].concat();
            draft.push(StoredChunk::Whole(&chunk));
            let own = content.fingerprinter(&keys.naming).fingerprint(&chunk);
            let there = of.slot(slot).map(|slot| slot.fingerprint);
            let there = there.filter(|it| *it != Fingerprint::ZERO && planted == Planted::Lie);
            named.push(SummarySlot::of(there.unwrap_or(own), StoredChunk::Whole(&chunk)));
        }
        builder.push(&sealer.seal(draft, seed.id, &seed.key), named);
    }
    let finished = builder.finish(Finishing {
        generation,
        origin: of.origin,
        keys,
        redundancy: world.open().redundancy(),
        padding: None,
    });
    world.objects.create(&finished.name.object(), finished.object()).unwrap();
    finished.name
}

/// The victim's arenas in their present generations.
fn of_server(victim: &Victim) -> Vec<Arena> {
    let domain = victim.server.write_keys().domain.id;
    let opened = arenas(&victim.world).into_iter().map(|name| opened(&victim.world, name));
    opened.filter(|arena| arena.domain == domain).collect()
}

/// A thief with the machine's own key makes further generations of its arenas. None of them counts: neither
/// beside the first, nor beside what the owner has rewritten, nor as a first one after that.
#[test]
fn a_machine_s_own_further_generations_remove_nothing() {
    let times = [(false, 1), (false, 90_000), (true, 0), (true, 900_000)];
    for planted in [Planted::Honest, Planted::Lie] {
        for ((is_rewritten, generation), number) in
            times.into_iter().flat_map(|time| [(time, None), (time, Some(9999))])
        {
            let when =
                |then| format!("{planted:?}, {is_rewritten}, {generation}, {number:?}: {then}");
            let victim = Victim::new(5400);
            let world = &victim.world;
            let keys = victim.server.write_keys();
            if is_rewritten {
                forget(&world.open(), &[victim.first]).unwrap();
                assert!(prune_all(world).carried.arenas_rewritten > 0);
            }
            let mut of_server = of_server(&victim);
            of_server.retain(|arena| !is_rewritten || arena.generation > 0);
            assert!(!of_server.is_empty());
            for arena in &of_server {
                plant_over(keys, world, (arena, generation), planted, number);
            }
            victim.assert_held(&when("planted"));
            if !is_rewritten {
                forget(&world.open(), &[victim.first]).unwrap();
            }
            prune_all(world);
            victim.assert_held(&when("pruned"));
            let mended = mend(world);
            assert!(mended.lost.is_empty(), "{}: {mended:?}", when("mended"));
            victim.assert_held(&when("mended"));
            prune_all(world);
            victim.assert_held(&when("pruned again"));
            let verified =
                verify(&world.open(), VerifyDepth::Data, &Silent, &Cancel::new()).unwrap();
            assert!(verified.is_sound(), "{}: {:?}", when("verified"), verified.faults);
        }
    }
}

/// The keys of a thief who writes another domain into the heads of arenas; their summaries do not open.
fn claiming(thief: &Repository, domain: DomainId) -> WriteKeys {
    let mut keys = thief.write_keys().clone();
    keys.domain.id = domain;
    keys
}

/// A thief of another domain says in a generation's head that it is of the domain of the arena, and seals
/// blocks for the owner. A repair makes nothing of it, and takes it away.
#[test]
fn what_claims_a_domain_in_its_head_alone_is_not_rescued_beside_others() {
    for by_owner in [false, true] {
        let victim = Victim::new(5410);
        let world = &victim.world;
        let own = by_owner.then(|| (world.backup().snapshot.id, world.image()));
        let all: Vec<Arena> = arenas(world).into_iter().map(|name| opened(world, name)).collect();
        for arena in &all {
            let keys = claiming(&victim.thief, arena.domain);
            plant_over(&keys, world, (arena, 7), Planted::Honest, None);
        }
        let mended = mend(world);
        assert_eq!((mended.rescued, mended.lost.len()), (0, 0), "{mended:?}");
        assert_eq!(mended.taken_away, all.len() as u64);
        forget(&world.open(), &[victim.first]).unwrap();
        prune_all(world);
        victim.assert_held("pruned");
        if let Some((id, image)) = own {
            world.assert_holds(&world.open(), id, &image, "the owner's");
        }
    }
}

/// A thief plants a generation over an arena that is lost, and a repair makes what it can of it. When the
/// arena comes back, it counts, and no repair takes it away.
#[test]
fn what_comes_back_counts_before_what_was_rescued_without_a_proof() {
    for claims_own in [false, true] {
        let victim = Victim::new(5420);
        let world = &victim.world;
        let whole = world.objects.snapshot();
        let mut lost = of_server(&victim);
        lost.retain(|arena| ArenaContent::of(arena.id) == ArenaContent::Data);
        for arena in &lost {
            world.objects.remove(&arena.name().object()).unwrap();
            let mut keys = victim.thief.write_keys().clone();
            if claims_own {
                keys.domain.id = arena.domain;
            } else {
                // Its summary does not open, either.
                keys.domain.summary_key = world.open().write_keys().domain.summary_key;
            }
            plant_over(&keys, world, (arena, 7), Planted::Honest, None);
        }
        let mended = mend(world);
        assert!(mended.rescued > 0 && !mended.affected.is_empty(), "{mended:?}");
        for arena in &lost {
            let name = arena.name().object();
            world.objects.create(&name, &whole[&name]).unwrap();
        }
        victim.assert_held("when it comes back");
        mend(world);
        victim.assert_held("after a repair");
        for arena in &lost {
            assert!(world.objects.snapshot().contains_key(&arena.name().object()));
        }
        forget(&world.open(), &[victim.first]).unwrap();
        prune_all(world);
        victim.assert_held("after a prune");
    }
}

/// The owner rewrites arenas a second time, of which the machine has made a first generation again that gives
/// other chunks the names of those. What the owner has made is taken.
#[test]
fn a_first_generation_that_was_made_again_is_not_taken_over() {
    for number in [None, Some(9999)] {
        let victim = Victim::new(5401);
        let world = &victim.world;
        world.mutate(5402);
        let third = run(&victim.server, &options(&world.tree()), &Silent).unwrap().snapshot.id;
        forget(&world.open(), &[victim.first]).unwrap();
        assert!(prune_all(world).carried.arenas_rewritten > 0);
        let mut rewritten = of_server(&victim);
        rewritten.retain(|arena| arena.generation > 0);
        for arena in &rewritten {
            plant_over(victim.server.write_keys(), world, (arena, 0), Planted::Lie, number);
        }
        forget(&world.open(), &[victim.second.0]).unwrap();
        prune_all(world);
        let is_again = |arena: &&Arena| {
            let is_later =
                |name: &ArenaName| name.id == arena.id && name.generation > arena.generation;
            arenas(world).iter().any(is_later)
        };
        assert!(rewritten.iter().any(|arena| is_again(&arena)), "{number:?}");
        world.assert_holds(&world.open(), third, &world.image(), &format!("{number:?}"));
    }
}
