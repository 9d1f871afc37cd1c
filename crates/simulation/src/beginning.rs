//! What every schedule begins with: a repository of a few snapshots that share chunks, some of them
//! deltas, and of one that was collected. It is made once, by the engine.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use strongroom_arena::{CompressionLevel, Redundancy};
use strongroom_backend::{Backend, MemoryBackend, ObjectName};
use strongroom_base::{Cancel, Clock, SeededEntropy, Silent, SizeLimits};
use strongroom_chunk::Limits;
use strongroom_engine::{BackupOptions, backup_reader};
use strongroom_repository::config::Config;
use strongroom_repository::keys::{KdfCost, SlotSecret};
use strongroom_repository::{
    Compression, InitOptions, PackOptions, Repository, Surroundings, in_mode,
};
use strongroom_source::SourceOptions;
use strongroom_testkit::{Random, TickingClock};
use strongroom_upkeep::{PruneOptions, forget, prune};

use crate::ledger::{Ledger, Report, Wish};
use crate::store::{Bytes, Operation, Store};

/// Every file has chunks of this length.
const CHUNK_BYTES: usize = 1 << 10;
/// Places of a file that hold a chunk each.
const PLACES: u64 = 4;
/// Versions of what is in a place. Two and two differ by some bytes, so one is stored as a delta of
/// the other; the rest have nothing in common.
const VERSIONS: u64 = 4;
/// The name of the only file.
pub const FILE: &[u8] = b"file";
/// Like those of `key generate`: it needs no costly derivation.
const PASSPHRASE: &[u8] =
    b"strongroom-key-5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a4f56ba95";
/// Snapshots at the beginning.
const SNAPSHOTS: u64 = 3;
/// The one after them, which was forgotten and collected: what it had may come back.
const COLLECTED: usize = SNAPSHOTS as usize;

/// What every schedule begins with.
pub struct Beginning {
    /// The objects.
    pub store: Store,
    /// What was promised.
    pub ledger: Ledger,
    config: Config,
    keys: strongroom_base::RepositoryKeys,
    secret: SlotSecret,
    slot: strongroom_base::SlotId,
}

impl Beginning {
    /// Makes it; in a store that overwrites if creators agree by notes.
    pub fn make(agreed: bool) -> Self {
        let objects = Arc::new(MemoryBackend::new());
        let surroundings = Surroundings {
            backend: objects.clone(),
            clock: Arc::new(TickingClock::new()),
            entropy: Arc::new(SeededEntropy::new(0)),
            cache: None,
        };
        let options = InitOptions {
            chunk_limits: Limits::new(CHUNK_BYTES, CHUNK_BYTES).expect("the limits are in order"),
            arena_bytes: 1 << 20,
            redundancy: Redundancy { per_mille: 0 },
            padding: false,
            cost: Some(KdfCost::CHEAPEST),
            label: String::new(),
            agreed,
            by_value: false,
        };
        let repository = Repository::init(surroundings, PASSPHRASE, &options)
            .expect("an empty place in memory takes a repository");
        let (mut ledger, mut random) = (Ledger::default(), Random::new(0));
        for number in 0..=SNAPSHOTS {
            let content = match number {
                SNAPSHOTS => (0..PLACES).flat_map(|place| chunk(place, VERSIONS - 1)).collect(),
                _ => content(&mut random, &ledger),
            };
            let label = ledger.begin(content.clone());
            let options = backup_options(label, "host-0");
            let mut input = &content[..];
            let outcome =
                backup_reader(&repository, FILE, &mut input, &options, &Silent, &Cancel::new());
            let outcome = outcome.expect("a place in memory takes a backup");
            ledger.attempts[label].report = Report::Committed(outcome.snapshot.id);
        }
        let collected = ledger.attempts[COLLECTED].committed().expect("it was committed");
        forget(&repository, &[collected]).expect("a place in memory takes a wish");
        ledger.attempts[COLLECTED].wish(Wish::Forget);
        let before = kept(&objects);
        let all = PruneOptions { unused_percent_max: 0, ..PruneOptions::default() };
        let outcome = prune(&repository, &all, &Silent, &Cancel::new());
        assert!(outcome.is_ok_and(|outcome| outcome.carried.arenas_removed > 0), "it had arenas");
        let after = kept(&objects);
        // Each was created once more, and that has not been done so far.
        let removed = before.into_iter().filter(|(name, _)| !after.contains_key(name));
        let again = if agreed { Operation::Replace } else { Operation::Create };
        let pending = removed.map(|(name, bytes)| again(name, bytes)).collect();
        let Repository { config, keys, secret, slot, .. } = repository;
        let store = Store { objects: after, pending };
        Self { store, ledger, config, keys, secret, slot }
    }

    /// The repository, open for a program: its way to the store, its clock, its randomness, where it
    /// may keep caches, and its limits.
    pub fn open(
        &self,
        backend: Arc<dyn Backend>,
        clock: Arc<dyn Clock>,
        seed: u64,
        cache: Option<PathBuf>,
        limits: SizeLimits,
    ) -> Repository {
        let SlotSecret::Full { master, naming } = &self.secret else {
            unreachable!("init makes a full slot");
        };
        let secret = SlotSecret::Full { master: master.clone(), naming: naming.clone() };
        let entropy = Arc::new(SeededEntropy::new(seed));
        let backend = in_mode(backend, self.config.store, entropy.clone());
        Repository {
            surroundings: Surroundings { backend, clock, entropy, cache },
            config: self.config.clone(),
            keys: self.keys.clone(),
            secret,
            slot: self.slot,
            config_faults: Vec::new(),
            trusts_references: false,
            // One thread of an actor calls at a time: which of two comes first is no matter of a seed.
            limits: SizeLimits { arenas_behind_max: 0, ..limits },
        }
    }
}

fn kept(objects: &MemoryBackend) -> BTreeMap<ObjectName, Bytes> {
    objects.snapshot().into_iter().map(|(name, bytes)| (name, bytes.into())).collect()
}

/// The options of a backup of this host; its label finds it in the ledger.
pub fn backup_options(label: usize, host: &str) -> BackupOptions {
    BackupOptions {
        paths: Vec::new(),
        source: SourceOptions::default(),
        host: host.to_owned(),
        user: "user".to_owned(),
        uid: 0,
        gid: 0,
        labels: vec![label.to_string()],
        force: false,
        dry_run: false,
        parent: None,
        count_first: false,
        pack: PackOptions {
            compression: Compression::Level(CompressionLevel::DEFAULT),
            block_bytes: 2 * CHUNK_BYTES,
            workers: 1,
            deltas: true,
        },
        readers: 1,
        as_made: None,
        program: String::new(),
    }
}

/// The next content of a file: an earlier one again, or one with some places changed. There are few
/// possible chunks, so most are wanted again after what needed them was forgotten.
pub fn content(random: &mut Random, ledger: &Ledger) -> Vec<u8> {
    let attempts = &ledger.attempts;
    let earlier = (!attempts.is_empty()).then(|| random.pick(attempts).content.clone());
    match earlier {
        Some(earlier) if random.once_in(3) => earlier.to_vec(),
        Some(earlier) => {
            let mut content = earlier.to_vec();
            for _ in 0..=random.below(2) {
                let place = random.below(PLACES);
                let begin = place as usize * CHUNK_BYTES;
                let chunk = chunk(place, random.below(VERSIONS));
                content[begin..begin + CHUNK_BYTES].copy_from_slice(&chunk);
            }
            content
        }
        None => (0..PLACES).flat_map(|place| chunk(place, 0)).collect(),
    }
}

fn chunk(place: u64, version: u64) -> Vec<u8> {
    let mut bytes = Random::new(1000 + 10 * place + version / 2).noise(CHUNK_BYTES);
    let change = Random::new(2000 + 100 * place + version).noise(16);
    bytes[500..516].copy_from_slice(&change);
    bytes
}
