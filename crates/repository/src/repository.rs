//! A repository: its objects, its configuration and its keys, open for the verbs.
//!
//! ```text
//! config, config.copy     the settings of init            readable without a key
//! keys/SLOT, SLOT.copy    one key slot each
//! arenas/ARENA            the data and the metadata
//! snapshots/SNAPSHOT      what was committed
//! sessions/SNAPSHOT       a writer at work
//! ```

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use strongroom_arena::envelope::format::{HeaderError, ObjectKind};
use strongroom_arena::envelope::{self, EnvelopeError, Identity};
use strongroom_arena::{ARENAS_FOLDER, ArenaStore, CacheLimits, Origin, Redundancy};
use strongroom_backend::{AgreedBackend, Backend, BackendError, ObjectName, both, remove_object};
use strongroom_base::entropy::random_array;
use strongroom_base::{
    Clock, DomainId, Entropy, MasterSecret, NamingSecret, RepositoryId, RepositoryKeys, SizeLimits,
    SlotId, WriteKeys,
};
use strongroom_chunk::Limits;

use crate::config::{
    ARENA_BYTES_DEFAULT, ARENA_BYTES_MAX, Config, NAMING_FINGERPRINT, NAMING_LOCATION,
    STORE_AGREED, STORE_EXCLUSIVE,
};
use crate::error::RepositoryError;
use crate::keys::{KdfCost, KeySlot, NewSlot, SlotSecret, open_slot, read_slots_ahead, write_slot};
use crate::near::Near;
use crate::objects::{CONFIG, COPY, KEYS_FOLDER, SNAPSHOTS_FOLDER, is_drawn, read_small};
use crate::proofs::WithProofs;
use crate::trial;

/// The caches of one place, each of a domain, that are asked for the slot that was opened last.
const CACHES_ASKED_MAX: usize = 64;

/// The file in the caches of a repository with the key slot that was opened last: it is tried first,
/// and read while the slots are listed if the repository is far away.
const SLOT_FILE: &str = "slot";

/// What a verb needs of the world outside.
#[derive(Clone)]
pub struct Surroundings {
    /// Where the repository's objects are.
    pub backend: Arc<dyn Backend>,
    /// The source of the time.
    pub clock: Arc<dyn Clock>,
    /// Draws keys and names.
    pub entropy: Arc<dyn Entropy>,
    /// Where caches may be kept; `None` to keep them in memory.
    pub cache: Option<PathBuf>,
}

impl Surroundings {
    /// Has what says that a newer program made it prove that.
    fn ask_for_proofs(&mut self, keys: &RepositoryKeys) {
        let key = keys.write.naming.envelope_key;
        self.backend = Arc::new(WithProofs::new(self.backend.clone(), key));
    }

    /// Puts the agreement of creators between the verbs and a place without exclusive create.
    fn agree(&mut self, store: u8) {
        self.backend = in_mode(self.backend.clone(), store, self.entropy.clone());
    }
}

/// A place as it is used in a mode ([`Config::store`]).
pub fn in_mode(
    backend: Arc<dyn Backend>,
    store: u8,
    entropy: Arc<dyn Entropy>,
) -> Arc<dyn Backend> {
    match store {
        STORE_AGREED => Arc::new(AgreedBackend::new(backend, is_drawn, entropy)),
        _ => backend,
    }
}

/// A place that has a copy of a repository, or will have one, in the mode that `source` says.
pub fn in_mode_of(
    source: &dyn Backend,
    target: Arc<dyn Backend>,
    entropy: Arc<dyn Entropy>,
) -> Arc<dyn Backend> {
    match read_config(source) {
        Ok((config, _)) => in_mode(target, config.store, entropy),
        // The caller finds out for itself that there is no repository.
        Err(_) => target,
    }
}

/// What `init` decides.
#[derive(Debug, Clone)]
pub struct InitOptions {
    /// Bounds of the length of a file's chunk.
    pub chunk_limits: Limits,
    /// An arena is closed once its blocks have this many bytes.
    pub arena_bytes: u32,
    /// How much parity arenas get.
    pub redundancy: Redundancy,
    /// Whether arenas are padded, so that their lengths reveal less.
    pub padding: bool,
    /// What opening the first key slot costs; the default depends on its passphrase.
    pub cost: Option<KdfCost>,
    /// The name of the first key slot.
    pub label: String,
    /// Whether creators agree by notes also if the place creates exclusively.
    pub agreed: bool,
    /// Whether chunks are compared byte by byte and named by their places (Foundation §3).
    pub by_value: bool,
}

impl Default for InitOptions {
    fn default() -> Self {
        Self {
            chunk_limits: Limits::DEFAULT,
            arena_bytes: ARENA_BYTES_DEFAULT,
            redundancy: Redundancy::ARENA,
            padding: false,
            cost: None,
            label: String::new(),
            agreed: false,
            by_value: false,
        }
    }
}

/// An open repository.
pub struct Repository {
    /// What it needs of the world outside.
    pub surroundings: Surroundings,
    /// What was decided at `init`.
    pub config: Config,
    /// What this user may do.
    pub keys: RepositoryKeys,
    /// What the key slot held; for making further slots.
    pub secret: SlotSecret,
    /// The key slot that was opened.
    pub slot: SlotId,
    /// What is wrong with the configuration that was passed over for its copy; mostly empty.
    pub config_faults: Vec<(ObjectName, RepositoryError)>,
    /// Whether snapshots of machines that can only store may name chunks of other domains. False
    /// unless the owner says so, for snapshots of before this was refused.
    pub trusts_references: bool,
    /// The limits of what is written, and of what the verbs hold. Tests make them small.
    pub limits: SizeLimits,
}

impl Repository {
    /// Makes a repository in a place that has none.
    pub fn init(
        mut surroundings: Surroundings,
        passphrase: &[u8],
        options: &InitOptions,
    ) -> Result<Self, RepositoryError> {
        let backend = &*surroundings.backend;
        let place = backend.describe();
        if exists(backend)? {
            return Err(RepositoryError::RepositoryExists { place });
        }
        // An interrupted `init` leaves only key slots.
        for folder in ["", ARENAS_FOLDER, SNAPSHOTS_FOLDER] {
            if !backend.list(folder)?.is_empty() {
                return Err(RepositoryError::PlaceNotEmpty { place });
            }
        }
        let store = match options.agreed {
            true => STORE_AGREED,
            false => trial::mode_of(backend, &*surroundings.entropy)?,
        };
        let was_tried = !options.agreed && surroundings.backend.promises().is_exclusive.is_none();
        surroundings.agree(store);
        let backend = &*surroundings.backend;
        let entropy = &*surroundings.entropy;
        let config = Config {
            id: RepositoryId(random_array(entropy)),
            created: surroundings.clock.now(),
            chunkers: Config::chunkers(options.chunk_limits),
            arena_bytes: options.arena_bytes,
            parity_per_mille: options.redundancy.per_mille,
            naming: if options.by_value { NAMING_LOCATION } else { NAMING_FINGERPRINT },
            padding: options.padding,
            store,
        };
        let master = MasterSecret(random_array(entropy));
        let naming = NamingSecret(random_array(entropy));
        let mut keys = master.keys(&naming);
        keys.write.naming = config.naming_keys(keys.write.naming);
        let config_bytes = config.pack(&master.owner_keys().authority);
        let secret = SlotSecret::Full { master, naming };
        let new =
            NewSlot { label: options.label.clone(), created: config.created, cost: options.cost };
        let slot = KeySlot::seal(new, &secret, passphrase, config.id, entropy)?;
        // Slots of an interrupted `init`. A slot that appears once this is a repository may belong
        // to a person who has just been given a passphrase.
        let leftovers = backend.list(KEYS_FOLDER)?;
        // The key before the configuration: a place with a configuration is a repository, and an
        // `init` that was interrupted before can be repeated.
        write_slot(backend, &slot)?;
        let kind = ObjectKind::Config;
        let identity = Identity { kind, id: config.id.0, generation: 0, origin: Origin::NONE };
        let object = envelope::seal_small(&config_bytes, identity);
        backend.create(&ObjectName::top(&format!("{CONFIG}{COPY}")), &object)?;
        backend.create(&ObjectName::top(CONFIG), &object)?;
        for leftover in leftovers {
            remove_object(backend, &leftover.name)?;
        }
        let (slot, config_faults, limits) = (slot.id, Vec::new(), SizeLimits::DEFAULT);
        surroundings.ask_for_proofs(&keys);
        let made = Self {
            surroundings,
            config,
            keys,
            secret,
            slot,
            config_faults,
            trusts_references: false,
            limits,
        };
        if let Some(folder) = made.cache_folder().filter(|_| was_tried) {
            trial::note(&folder);
        }
        Ok(made)
    }

    /// Opens the repository with a passphrase.
    pub fn open(surroundings: Surroundings, passphrase: &[u8]) -> Result<Self, RepositoryError> {
        ClosedRepository::find(surroundings)?.open(passphrase)
    }

    /// Fails if this program does not know how names are taken here. Then it must not take any: what
    /// others have decided could be lost.
    pub fn check_mode(&self) -> Result<(), RepositoryError> {
        match self.config.store {
            STORE_EXCLUSIVE | STORE_AGREED => Ok(()),
            store => {
                Err(RepositoryError::Unknown { what: "mode of storing", number: store.into() })
            }
        }
    }

    /// Fails if the place does not take names as this repository relies on. Each machine tries that
    /// once; without a cache it could not know that it has, and does not.
    pub fn check_place(&self) -> Result<(), RepositoryError> {
        match self.cache_folder().filter(|_| self.config.store == STORE_EXCLUSIVE) {
            Some(folder) => trial::try_again(self.backend(), &*self.surroundings.entropy, &folder),
            None => Ok(()),
        }
    }

    /// The same repository in another place that has a copy of it, without caches.
    pub fn copy_in(&self, backend: Arc<dyn Backend>) -> Self {
        let mut surroundings = Surroundings { backend, cache: None, ..self.surroundings.clone() };
        surroundings.ask_for_proofs(&self.keys);
        Self {
            surroundings,
            config: self.config.clone(),
            limits: self.limits,
            keys: self.keys.clone(),
            secret: self.secret.clone(),
            slot: self.slot,
            config_faults: Vec::new(),
            trusts_references: self.trusts_references,
        }
    }

    /// The place that keeps the objects.
    pub fn backend(&self) -> &dyn Backend {
        &*self.surroundings.backend
    }

    /// The keys to store with.
    pub fn write_keys(&self) -> &WriteKeys {
        &self.keys.write
    }

    /// A reader of the repository's arenas, with its own caches.
    pub fn arena_store(&self, limits: CacheLimits) -> ArenaStore {
        let backend = self.surroundings.backend.clone();
        let limits = limits.at_most(self.limits.cache_bytes_max);
        ArenaStore::new(backend, &self.keys, self.config.arena_bytes, limits)
    }

    /// How much parity arenas get.
    pub fn redundancy(&self) -> Redundancy {
        Redundancy { per_mille: self.config.parity_per_mille }
    }

    /// Arenas that are kept near, if the repository is on another machine and there is a cache.
    pub fn near(&self) -> Option<Near> {
        self.far_cache().map(|cache| Near::in_cache(&cache))
    }

    /// The folder of this repository's caches, if the repository is on another machine.
    pub fn far_cache(&self) -> Option<PathBuf> {
        let is_far = self.backend().promises().in_flight > 1;
        self.cache_folder().filter(|_| is_far)
    }

    /// Where this repository's caches may be kept. Each copy of a repository has its own: in a
    /// shared one, each would drop the arenas that only the other has. Each domain also has its
    /// own: what one trusts, another does not.
    pub fn cache_folder(&self) -> Option<PathBuf> {
        let cache = self.surroundings.cache.as_ref()?;
        let mut name = format!("{}-{}", self.config.id, place_mark(self.backend()));
        let domain = self.keys.write.domain.id;
        if domain != DomainId::ZERO {
            name = format!("{name}-{domain}");
        }
        Some(cache.join(name))
    }
}

impl Surroundings {
    /// The folders of this machine in which caches of this place are kept, of whichever repository
    /// and domain: for one that is not open yet.
    pub fn cache_folders(&self) -> Vec<PathBuf> {
        let mark = place_mark(&*self.backend);
        let listed = self.cache.as_ref().and_then(|cache| std::fs::read_dir(cache).ok());
        let folders = listed.into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
        let has_mark = |path: &PathBuf| {
            let name = path.file_name().and_then(OsStr::to_str);
            name.is_some_and(|name| name.split('-').nth(1) == Some(&mark))
        };
        folders.filter(has_mark).collect()
    }
}

/// What the names of a place's caches have in common.
fn place_mark(backend: &dyn Backend) -> String {
    let described = backend.describe();
    // The place itself, and not one of several stores or a replica.
    let itself = |folder: &PathBuf| folder.display().to_string() == described;
    let place = match backend.folders().into_iter().find(itself) {
        Some(folder) => {
            let folder = folder.canonicalize().unwrap_or(folder);
            blake3::hash(folder.as_os_str().as_bytes())
        }
        None => blake3::hash(described.as_bytes()),
    };
    place.to_hex()[..16].to_owned()
}

/// Fails unless a repository can be made at a place: it must be empty, or have only the key slots
/// that an interrupted `init` left.
pub fn check_vacant(backend: &dyn Backend) -> Result<(), RepositoryError> {
    let name = backend.describe();
    if exists(backend)? {
        return Err(RepositoryError::RepositoryExists { place: name });
    }
    // A concurrent `init` may have made the folder and not yet its key slot.
    if !backend.holds_at_most(KEYS_FOLDER)? && backend.list(KEYS_FOLDER)?.is_empty() {
        return Err(RepositoryError::PlaceNotEmpty { place: name });
    }
    Ok(())
}

/// A repository that was found, and is not open yet.
pub struct ClosedRepository {
    surroundings: Surroundings,
    found: FoundConfig,
    slots: Vec<KeySlot>,
}

impl ClosedRepository {
    /// Reads what it takes to open it.
    ///
    /// # Errors
    ///
    /// [`RepositoryError::NotARepository`] if there is none, before anybody is asked for a
    /// passphrase.
    pub fn find(surroundings: Surroundings) -> Result<Self, RepositoryError> {
        let backend = &*surroundings.backend;
        let in_flight = backend.promises().in_flight;
        let likely = if in_flight > 1 { slots_known(&surroundings) } else { Vec::new() };
        let (found, slots) = both(
            in_flight,
            || find_config(backend, &config_names()),
            || read_slots_ahead(backend, &likely),
        );
        let (found, (mut slots, found_slots)) = (found?, slots?);
        slots.sort_by_key(|slot| slot.cost.work());
        if slots.is_empty() {
            return Err(RepositoryError::NoKeySlot { found: found_slots });
        }
        Ok(Self { surroundings, found, slots })
    }

    /// Opens it with a passphrase. If it is another one, it can be tried again.
    pub fn open(&mut self, passphrase: &[u8]) -> Result<Repository, RepositoryError> {
        let Self { surroundings, found, slots } = self;
        let known = slots_known(surroundings);
        let mut forged = None;
        let opened = match open_slot(slots, passphrase, &known, &found.config, &found.bytes) {
            Ok((slot, secret)) => (found.config.clone(), slot, secret),
            // It may be another's configuration, or changed without a key, and its copy right.
            Err(error) => {
                let [_, copy] = config_names();
                let other = find_config(&*surroundings.backend, std::slice::from_ref(&copy)).ok();
                let Some(other) = other.filter(|other| other.bytes != found.bytes) else {
                    // Its keys may be of a form that only a newer program knows.
                    refuse_newer(&*surroundings.backend)?;
                    return Err(error);
                };
                let (slot, secret) =
                    open_slot(slots, passphrase, &known, &other.config, &other.bytes)?;
                forged = Some((found.name.clone(), RepositoryError::ForgedConfig));
                (other.config, slot, secret)
            }
        };
        let (config, slot, secret) = opened;
        let mut surroundings = surroundings.clone();
        let mut config_faults = std::mem::take(&mut found.unreadable);
        config_faults.extend(forged);
        surroundings.agree(config.store);
        let mut keys = secret.keys();
        keys.write.naming = config.naming_keys(keys.write.naming);
        surroundings.ask_for_proofs(&keys);
        for (name, _) in config_faults.iter().filter(|(_, error)| is_newer(error)) {
            // Its copy is older, and this program must not go by that; or the claim is no proof.
            if let Err(again) = read_small(&*surroundings.backend, name, ObjectKind::Config, None)
                && is_newer(&again)
            {
                return Err(again);
            }
        }
        let repository = Repository {
            surroundings,
            config,
            keys,
            secret,
            slot,
            config_faults,
            trusts_references: false,
            limits: SizeLimits::DEFAULT,
        };
        if let Some(folder) = repository.cache_folder().filter(|_| !known.contains(&slot)) {
            // If it cannot be written, the slot is read after the listing next time, too, and tried
            // after all that are cheaper.
            let _ = std::fs::create_dir_all(&folder)
                .and_then(|()| std::fs::write(folder.join(SLOT_FILE), slot.to_string()));
        }
        Ok(repository)
    }
}

/// The slots that were opened last at this place, for one that is not open yet.
fn slots_known(surroundings: &Surroundings) -> Vec<SlotId> {
    let folders = surroundings.cache_folders().into_iter().take(CACHES_ASKED_MAX);
    folders
        .filter_map(|folder| std::fs::read_to_string(folder.join(SLOT_FILE)).ok()?.parse().ok())
        .collect()
}

/// Whether there is a repository.
pub fn exists(backend: &dyn Backend) -> Result<bool, BackendError> {
    for name in config_names() {
        match backend.size(&name) {
            Ok(_) => return Ok(true),
            // Something has its name; opening the repository will report what is wrong with it.
            Err(error) if error.is_unreadable() || error.is_withheld() => return Ok(true),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

fn config_names() -> [ObjectName; 2] {
    [ObjectName::top(CONFIG), ObjectName::top(&format!("{CONFIG}{COPY}"))]
}

/// A configuration that can be read. Whether the owner signed it is known once a slot is open.
struct FoundConfig {
    name: ObjectName,
    config: Config,
    bytes: Vec<u8>,
    /// What was tried before, and why it cannot be read.
    unreadable: Vec<(ObjectName, RepositoryError)>,
}

/// The configuration and its bytes, from the copy that can be read.
pub fn read_config(backend: &dyn Backend) -> Result<(Config, Vec<u8>), RepositoryError> {
    find_config(backend, &config_names()).map(|found| (found.config, found.bytes))
}

/// The first of these that can be read.
fn find_config(
    backend: &dyn Backend,
    names: &[ObjectName],
) -> Result<FoundConfig, RepositoryError> {
    let mut unreadable = Vec::new();
    for name in names {
        match read_config_at(backend, name) {
            Ok((config, bytes)) => {
                return Ok(FoundConfig { name: name.clone(), config, bytes, unreadable });
            }
            Err(RepositoryError::Backend(error)) if error.is_not_found() => {}
            // The place does not answer; that is no matter of this object.
            Err(RepositoryError::Backend(error)) if !error.is_damage() && !error.is_withheld() => {
                return Err(error.into());
            }
            Err(error) => unreadable.push((name.clone(), error)),
        }
    }
    let not_one = || RepositoryError::NotARepository { place: backend.describe() };
    // Only a key can say whether it is newer.
    unreadable.sort_by_key(|(_, error)| !is_newer(error));
    Err(unreadable.into_iter().next().map_or_else(not_one, |(_, error)| error))
}

fn read_config_at(
    backend: &dyn Backend,
    name: &ObjectName,
) -> Result<(Config, Vec<u8>), RepositoryError> {
    let body = read_small(backend, name, ObjectKind::Config, None)?;
    match Config::unpack(&body) {
        Ok(config) => Ok((config, body)),
        Err(source) => Err(RepositoryError::Format { name: name.clone(), source }),
    }
}

/// Configurations that are whole and that the owner did not sign.
pub fn forged_configs(repository: &Repository) -> Result<Vec<ObjectName>, RepositoryError> {
    let authority = &repository.write_keys().authority;
    let mut forged = Vec::new();
    for name in config_names() {
        match read_small(repository.backend(), &name, ObjectKind::Config, None) {
            Ok(body) if Config::is_authentic(&body, authority) => {}
            Ok(_) => forged.push(name),
            Err(RepositoryError::Backend(error)) if error.is_not_found() => {}
            // It is reported as damaged.
            Err(error) if error.is_damage() || error.is_withheld() => {}
            Err(RepositoryError::NotARepository { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(forged)
}

/// The length at which arenas are closed, by the configuration; the greatest possible if that
/// cannot be read. If its copy says otherwise, one of the two is forged: the greater length counts.
/// Needs no key.
pub fn arena_bytes_of(backend: &dyn Backend) -> u32 {
    let configs = config_names().map(|name| read_config_at(backend, &name));
    let lengths = configs.into_iter().flatten().map(|(config, _)| config.arena_bytes);
    lengths.max().unwrap_or(ARENA_BYTES_MAX)
}

/// Fails if a newer program made the repository: its new parts would look like damage here. Without a
/// key it fails, too, if a configuration only says so.
pub fn refuse_newer(backend: &dyn Backend) -> Result<(), RepositoryError> {
    for name in config_names() {
        match read_config_at(backend, &name) {
            Err(error) if is_newer(&error) => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

fn is_newer(error: &RepositoryError) -> bool {
    let RepositoryError::Object { source, .. } = error else { return false };
    matches!(
        source,
        EnvelopeError::Unknown | EnvelopeError::Header(HeaderError::NewerVersion { .. })
    )
}
