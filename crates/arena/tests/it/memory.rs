//! How much memory reading an object takes, for any claim in its header.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use strongroom_arena::SummarySlot;
use strongroom_arena::envelope::format::{HEADER_BYTES, Header, ObjectKind, Origin};
use strongroom_arena::envelope::{self, HEADROOM, Identity, Redundancy};
use strongroom_arena::format::{BlockFrame, BlockHead, Codec, Summary, SummaryBlock};
use strongroom_base::{ArenaId, Fingerprint, Location};

use crate::{World, chunks};

/// Counts the memory of each thread.
struct Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    let held = HELD.get() + bytes;
    HELD.set(held);
    PEAK.set(PEAK.get().max(held));
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: every call is the system allocator's, with the same arguments; counting allocates
// nothing, as its cells are initialised by constants and need no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// The most bytes that `work` holds at a time, besides what was held before.
fn peak_of(work: impl FnOnce()) -> usize {
    let before = HELD.get();
    PEAK.set(before);
    work();
    usize::try_from(PEAK.get() - before).unwrap()
}

fn sealed(body_bytes: usize, per_mille: u32) -> Vec<u8> {
    let kind = ObjectKind::DataArena;
    let identity = Identity { kind, id: [1; 16], generation: 0, origin: Origin::NONE };
    envelope::seal(vec![1; HEADROOM + body_bytes], identity, Redundancy { per_mille })
}

/// The bounds that `inspect` and `repair` promise.
fn check(name: &str, object: &[u8]) {
    let inspect = peak_of(|| drop(envelope::inspect(object)));
    assert!(inspect <= 1 << 20, "{name}: inspect holds {inspect}");
    let repair = peak_of(|| drop(envelope::repair(object)));
    let bound = 6 * object.len() + (1 << 20);
    assert!(repair <= bound, "{name}: repair holds {repair} for {}", object.len());
}

/// What a header is made to claim.
type Claim = (&'static str, fn(&mut Header));

#[test]
fn claims_cost_nothing() {
    let object = sealed(3000, 1000);
    let header = envelope::peek(&object).unwrap();
    let claims: [Claim; 5] = [
        ("4 GiB of body", |h| (h.body_bytes, h.shard_bytes_log2) = (0xffff_0000, 16)),
        ("much parity", |h| {
            (h.body_bytes, h.shard_bytes_log2, h.parity_shards) = (1 << 31, 16, 1 << 14);
        }),
        ("long shards", |h| (h.shard_bytes_log2, h.parity_shards) = (16, 1)),
        ("short shards", |h| (h.body_bytes, h.shard_bytes_log2) = (1 << 21, 6)),
        ("the truth", |_| ()),
    ];
    for (name, claim) in claims {
        let mut header: Header = header.clone();
        claim(&mut header);
        let mut lying = object.clone();
        lying[..HEADER_BYTES].copy_from_slice(&header.pack());
        check(name, &lying);
        lying.truncate(200);
        check(name, &lying);
    }
}

#[test]
fn repair_keeps_to_its_bound() {
    for (body_bytes, per_mille) in [(1, 1000), (5000, 1000), (1 << 20, 1000), (16 << 20, 30)] {
        let object = sealed(body_bytes, per_mille);
        let layout = envelope::peek(&object).unwrap().layout();
        check("whole", &object);
        let mut damaged = object.clone();
        damaged[HEADROOM] ^= 1;
        check("a shard lost", &damaged);
        damaged[HEADROOM] ^= 1;
        damaged.truncate(layout.parity);
        check("parity lost", &damaged);
        damaged.truncate(layout.first_table);
        check("all but the body lost", &damaged);
    }
}

/// A summary of one block with this many slots, of which every fourth has a base.
fn summary_of(slots: u32) -> Summary {
    let frame = BlockFrame { number: 0, sealed_bytes: 100 };
    let head = BlockHead { first_slot: 0, chunk_count: slots, raw_bytes: 100, codec: Codec::Zstd };
    let mut summary = Summary::default();
    summary.blocks.push(SummaryBlock { frame, head, offset: 0 });
    for place in 0..slots {
        let base = Location { arena: ArenaId([7; 16]), slot: place };
        let bases = if place % 4 == 0 { vec![base] } else { Vec::new() };
        let fingerprint = Fingerprint([place as u8; 32]);
        summary.slots.push(&SummarySlot { fingerprint, chunk_bytes: 9000, bases });
    }
    summary
}

/// A struct with a vector for each slot took 64 bytes, and 80 more of the heap for each delta.
#[test]
fn engine_22_a_summary_in_memory_is_as_large_as_its_columns() {
    let slots = 10_000;
    let packed = summary_of(slots).pack();
    let before = HELD.get();
    let summary = Summary::unpack(&packed).unwrap();
    let held = usize::try_from(HELD.get() - before).unwrap();
    assert_eq!(held, summary.slots.heap_bytes() + size_of::<SummaryBlock>(), "as it is counted");
    let slots = slots as usize;
    assert_eq!(summary.slots.heap_bytes(), 36 * slots + 24 * slots / 4);
}

/// What caches count is what is held, but for what the cipher allocates by itself.
#[test]
fn an_arena_and_a_block_take_what_they_say() {
    let mut world = World::new();
    world.block_chunks = 100;
    let finished = world.build(&chunks(300), Redundancy::ARENA);
    world.put(finished.name.id, finished.object());
    let store = world.fresh_store();
    let before = HELD.get();
    let arena = store.open_arena_in(finished.name, finished.object()).unwrap();
    let held = usize::try_from(HELD.get() - before).unwrap() + size_of_val(&arena);
    let said = arena.memory_bytes();
    assert!((held..held + (1 << 10) + 1).contains(&said), "an arena holds {held}, says {said}");
    let before = HELD.get();
    let block = store.read_blocks(&arena, 1..=1).unwrap().pop().unwrap();
    let held = usize::try_from(HELD.get() - before).unwrap() + size_of_val(&block);
    let said = block.memory_bytes();
    assert!(held.abs_diff(said) <= 256, "a block holds {held}, says {said}");
}
