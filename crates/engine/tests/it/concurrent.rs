//! Several writers and readers of one repository at a time.

use std::sync::atomic::{AtomicU32, Ordering};

use strongroom_base::Silent;
use strongroom_testkit::Image;
use strongroom_testkit::tree::grow;

use crate::read_back::read_back;
use crate::world::{TREE, World, options, run, snapshot_ids};

/// Reads that must happen beside a writer.
const READS: u32 = 3;

#[test]
fn writers_at_once() {
    for cached in [false, true] {
        let world = World::new(90);
        let world = if cached { world.with_cache() } else { world };
        // Half of what each writer stores, all of them store.
        let roots: Vec<_> = (0..4_u64)
            .map(|writer| {
                let root = world.folder.path().join(format!("writer{writer}"));
                std::fs::create_dir(&root).unwrap();
                grow(&root.join("common"), 91, TREE);
                grow(&root.join("own"), 92 + writer, TREE);
                root
            })
            .collect();
        let outcomes: Vec<_> = std::thread::scope(|scope| {
            let running: Vec<_> = roots
                .iter()
                .map(|root| scope.spawn(|| run(&world.open(), &options(root), &Silent).unwrap()))
                .collect();
            running.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let repository = world.open();
        assert_eq!(snapshot_ids(&repository).len(), 4);
        for (root, outcome) in roots.iter().zip(&outcomes) {
            let kept = read_back(&repository, outcome.snapshot.id, root).unwrap();
            Image::of(root).assert_same(&kept, &format!("{}", root.display()));
        }
        // Afterwards every chunk is known to everybody.
        for root in &roots {
            let mut options = options(root);
            options.force = true;
            let again = run(&world.open(), &options, &Silent).unwrap();
            assert_eq!(again.written.data_chunks_new, 0);
        }
        let sessions = strongroom_testkit::damage::names_in(&world.objects.snapshot(), "sessions");
        assert_eq!(sessions, []);
    }
}

#[test]
fn a_reader_beside_a_writer() {
    let world = World::new(95);
    let first = world.backup();
    let image = world.image();
    let other = world.folder.path().join("other");
    grow(&other, 96, TREE);
    let reads = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            // Goes on until the reader has read beside it.
            while reads.load(Ordering::Relaxed) < READS {
                run(&world.open(), &options(&other), &Silent).unwrap();
            }
        });
        while !writer.is_finished() {
            let repository = world.open();
            world.assert_holds(&repository, first.snapshot.id, &image, "beside a writer");
            reads.fetch_add(1, Ordering::Relaxed);
        }
        writer.join().unwrap();
    });
    assert!(reads.load(Ordering::Relaxed) >= READS);
}
