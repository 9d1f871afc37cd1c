//! Arenas of very many very small chunks: the summary is what fills them.

use strongroom_arena::{CacheLimits, ListedArenas};
use strongroom_base::{Cancel, Silent, SizeLimits};
use strongroom_repository::{Repository, read_vouchers};
use strongroom_upkeep::{VerifyDepth, verify, vouch};

use crate::domains::put_only;
use crate::world::{LAPTOP, World, options, run};

/// Files of a few bytes, no two alike.
fn tiny_files(world: &World, count: u32) {
    for number in 0..count {
        world.write(&format!("{}/{number}", number % 7), format!("{number:05}").as_bytes());
    }
}

/// Slots of each arena.
fn slots(repository: &Repository) -> Vec<usize> {
    let store = repository.arena_store(CacheLimits::default());
    let listed = ListedArenas::list(repository.backend()).unwrap();
    listed.newest().map(|newest| store.arena(newest.name.id).unwrap().slots().count()).collect()
}

/// Kept, part 2: the bytes of a summary are a limit. An arena was closed by the bytes of its blocks
/// alone; files of a few bytes compress so well that its summary came to be longer than a reader
/// accepts, and everything in it was lost.
#[test]
fn kept_2_an_arena_is_closed_before_its_summary_is_too_long() {
    let world = World::bare(5400);
    tiny_files(&world, 600);
    let mut options = options(&world.tree());
    options.pack.block_bytes = 50;
    let whole = run(&world.open(), &options, &Silent).unwrap().snapshot.id;
    let most = slots(&world.open()).into_iter().max().unwrap();
    assert!(most >= 600, "all in one: {most}");
    world.assert_holds(&world.open(), whole, &world.image(), "as the program stores it");

    let mut world = World::bare(5401);
    world.limits.summary_bytes_max = 2000;
    tiny_files(&world, 600);
    options.paths = vec![world.tree()];
    let cut = run(&world.open(), &options, &Silent).unwrap().snapshot.id;
    let each = slots(&world.open());
    // 40 bytes for a slot, and the last block is added whole.
    assert!(each.len() > 10 && each.iter().all(|slots| *slots <= 70), "{each:?}");
    world.limits = SizeLimits::DEFAULT;
    world.assert_holds(&world.open(), cut, &world.image(), "in many arenas");
}

/// Kept, part 2: so is the list of vouchers. One object for all arenas of a verification would become
/// longer than what is read of one.
#[test]
fn kept_2_vouchers_are_written_in_several_objects() {
    let mut world = World::new(5402);
    let laptop = put_only(&world, "laptop", LAPTOP);
    run(&laptop, &options(&world.tree()), &Silent).unwrap();
    world.limits.vouchers_max = 3;
    let owner = world.open();
    let verified = verify(&owner, VerifyDepth::Data, &Silent, &Cancel::new()).unwrap();
    let count = vouch(&owner, &verified).unwrap();
    let objects = world.objects.snapshot();
    let of_vouchers = objects.keys().filter(|name| name.folder() == "vouchers").count();
    assert!(count > 3 && of_vouchers == count.div_ceil(3), "{count}: {of_vouchers}");
    assert_eq!(read_vouchers(&owner).unwrap().len(), count, "and all are read");
    let of_owner = run(&owner, &options(&world.tree()), &Silent).unwrap();
    assert_eq!(of_owner.written.data_chunks_new, 0, "and used");
}
