//! The bytes of trees, recipes and snapshots: canonical CBOR (RFC 8949 §4.2) with integer keys,
//! and plain little-endian references. The documents: `docs/format/tree.md`, `recipe.md`,
//! `snapshot.md`.
//!
//! Encoders write keys in ascending order and leave out defaults. Decoders accept only ascending
//! keys, skip keys they do not know, and never allocate more than the bytes they were given could
//! fill.

mod quick;
mod snapshot;

use std::sync::Arc;

use minicbor::data::Type;
use minicbor::decode::Error as CborError;
use minicbor::{Decoder, Encoder};
use strongroom_base::le::{LeReader, LeWrite};
use strongroom_base::{ArenaId, Fingerprint, Location, Timestamp};

use crate::entry::{DeviceNumber, Entry, EntryKind, Metadata, Xattr, is_valid_name};
use crate::reference::{ChunkRef, Recipe};

pub use snapshot::{pack_snapshot, unpack_head, unpack_snapshot};

/// Bytes that are not the structure they should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// They are nothing that any program wrote.
    #[error("damaged {what}: {detail}")]
    Damaged {
        /// The structure.
        what: &'static str,
        /// What is wrong with it.
        detail: String,
    },
    /// A newer program wrote them.
    #[error("its {what} is number {number}, which only a newer Strongroom knows")]
    Unknown {
        /// What has a number: a kind, a form, a feature.
        what: &'static str,
        /// The number.
        number: u64,
    },
}

impl FormatError {
    /// Bytes that no program wrote.
    pub fn damaged(what: &'static str, detail: impl ToString) -> Self {
        Self::Damaged { what, detail: detail.to_string() }
    }

    pub(crate) fn empty_tree_chunk() -> Self {
        Self::damaged("tree", "a chunk without entries")
    }

    /// Whether a newer program wrote the bytes. They are not damaged.
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown { .. })
    }
}

type Cbor<'b> = Encoder<&'b mut Vec<u8>>;
const INFALLIBLE: &str = "a vector takes all that is written to it";

/// How recipes and nodes name chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RecipeForm {
    /// By fingerprint and location.
    Fingerprints = 0,
    /// By location alone.
    Places = 1,
}

impl RecipeForm {
    /// The form for references: all chunks of a repository are named in the same way. Without any
    /// chunk, only holes, it is the first.
    fn of(refs: &[ChunkRef]) -> Self {
        let mut chunks = refs.iter().filter(|chunk| !chunk.is_hole()).peekable();
        match chunks.peek().is_some() && chunks.all(ChunkRef::is_named_by_place) {
            true => Self::Places,
            false => Self::Fingerprints,
        }
    }

    fn from_number(number: u64) -> Result<Self, FormatError> {
        let known = [Self::Fingerprints, Self::Places];
        let found = known.into_iter().find(|form| *form as u64 == number);
        found.ok_or(FormatError::Unknown { what: "form of recipe", number })
    }

    /// Bytes of a reference.
    const fn ref_bytes(self) -> usize {
        let place_and_length = ArenaId::BYTES + 4 + 8;
        match self {
            Self::Fingerprints => Fingerprint::BYTES + place_and_length,
            Self::Places => place_and_length,
        }
    }

    /// The bytes of references, appended.
    fn put_refs(self, bytes: &mut Vec<u8>, refs: &[ChunkRef]) {
        bytes.reserve(refs.len() * self.ref_bytes());
        for chunk in refs {
            if self == Self::Fingerprints {
                bytes.put(&chunk.fingerprint.0);
            }
            bytes.put(&chunk.location.arena.0);
            bytes.put_u32(chunk.location.slot);
            bytes.put_u64(chunk.stream_bytes);
        }
    }

    /// The references in `bytes`, one after another, replacing what a vector held.
    fn unpack_refs_to(self, bytes: &[u8], refs: &mut Vec<ChunkRef>) -> Result<(), FormatError> {
        if !bytes.len().is_multiple_of(self.ref_bytes()) {
            let detail = "its length is no multiple of a reference's";
            return Err(FormatError::damaged("recipe", detail));
        }
        let damaged = |error| FormatError::damaged("recipe", error);
        let mut fields = LeReader::new(bytes);
        refs.clear();
        refs.reserve_exact(bytes.len() / self.ref_bytes());
        while fields.remaining() > 0 {
            let fingerprint = match self {
                Self::Fingerprints => Some(Fingerprint(fields.array().map_err(damaged)?)),
                Self::Places => None,
            };
            let arena = ArenaId(fields.array().map_err(damaged)?);
            let location = Location { arena, slot: fields.u32().map_err(damaged)? };
            let stream_bytes = fields.u64().map_err(damaged)?;
            refs.push(match fingerprint {
                Some(fingerprint) => ChunkRef { fingerprint, location, stream_bytes },
                None if location == ChunkRef::hole(0).location => ChunkRef::hole(stream_bytes),
                None => ChunkRef::in_place(location, stream_bytes),
            });
        }
        match Self::of(refs) == self {
            true => Ok(()),
            false => Err(FormatError::damaged("recipe", "it has the form of other references")),
        }
    }
}

const _: () = assert!(RecipeForm::Fingerprints.ref_bytes() == 60);
const _: () = assert!(RecipeForm::Places.ref_bytes() == 28);

/// The bytes of a node: the number of its form, then its references.
pub fn pack_node(refs: &[ChunkRef]) -> Vec<u8> {
    let form = RecipeForm::of(refs);
    let mut bytes = vec![form as u8];
    form.put_refs(&mut bytes, refs);
    bytes
}

/// The references of a node.
pub fn unpack_node(bytes: &[u8]) -> Result<Vec<ChunkRef>, FormatError> {
    let empty = || FormatError::damaged("recipe", "a node of no bytes");
    let (form, packed) = bytes.split_first().ok_or_else(empty)?;
    let mut refs = Vec::new();
    RecipeForm::from_number(u64::from(*form))?.unpack_refs_to(packed, &mut refs)?;
    Ok(refs)
}

/// Keys of an entry's map.
mod entry_key {
    pub const NAME: u64 = 0;
    pub const KIND: u64 = 1;
    pub const MODE: u64 = 2;
    pub const UID: u64 = 3;
    pub const GID: u64 = 4;
    pub const USER: u64 = 5;
    pub const GROUP: u64 = 6;
    pub const MTIME: u64 = 7;
    pub const CTIME: u64 = 8;
    pub const INODE: u64 = 9;
    pub const DEVICE: u64 = 10;
    pub const LINKS: u64 = 11;
    pub const SIZE: u64 = 12;
    pub const RECIPE: u64 = 13;
    pub const SYMLINK_TARGET: u64 = 14;
    pub const DEVICE_NUMBER: u64 = 15;
    pub const XATTRS: u64 = 16;
    pub const PARTIAL: u64 = 17;
}

/// Numbers of the kinds of entries.
mod kind_number {
    pub const FILE: u8 = 0;
    pub const DIRECTORY: u8 = 1;
    pub const SYMLINK: u8 = 2;
    pub const FIFO: u8 = 3;
    pub const SOCKET: u8 = 4;
    pub const CHAR_DEVICE: u8 = 5;
    pub const BLOCK_DEVICE: u8 = 6;
}

/// An entry's bytes, appended.
pub fn put_entry(bytes: &mut Vec<u8>, entry: &Entry) {
    encode_entry(&mut Encoder::new(bytes), entry).expect(INFALLIBLE);
}

fn encode_entry(
    cbor: &mut Cbor<'_>,
    entry: &Entry,
) -> Result<(), minicbor::encode::Error<std::convert::Infallible>> {
    use entry_key::*;
    let meta = &entry.metadata;
    let (kind, recipe, target, device) = match &entry.kind {
        EntryKind::File { content } => (kind_number::FILE, Some(content), None, None),
        EntryKind::Directory { tree, .. } => (kind_number::DIRECTORY, Some(tree), None, None),
        EntryKind::Symlink { target } => (kind_number::SYMLINK, None, Some(target), None),
        EntryKind::Fifo => (kind_number::FIFO, None, None, None),
        EntryKind::Socket => (kind_number::SOCKET, None, None, None),
        EntryKind::CharDevice(device) => (kind_number::CHAR_DEVICE, None, None, Some(device)),
        EntryKind::BlockDevice(device) => (kind_number::BLOCK_DEVICE, None, None, Some(device)),
    };
    let optional = [
        meta.user.is_some(),
        meta.group.is_some(),
        meta.links != 1,
        meta.size != 0,
        recipe.is_some(),
        target.is_some(),
        device.is_some(),
        !meta.xattrs.is_empty(),
        entry.is_partial(),
    ];
    let present = optional.into_iter().filter(|present| *present).count() as u64;
    cbor.map(9 + present)?;
    cbor.u64(NAME)?.bytes(&entry.name)?;
    cbor.u64(KIND)?.u8(kind)?;
    cbor.u64(MODE)?.u16(meta.mode)?;
    cbor.u64(UID)?.u32(meta.uid)?;
    cbor.u64(GID)?.u32(meta.gid)?;
    if let Some(user) = &meta.user {
        cbor.u64(USER)?.str(user)?;
    }
    if let Some(group) = &meta.group {
        cbor.u64(GROUP)?.str(group)?;
    }
    cbor.u64(MTIME)?.i64(meta.mtime.0)?;
    cbor.u64(CTIME)?.i64(meta.ctime.0)?;
    cbor.u64(INODE)?.u64(meta.inode)?;
    cbor.u64(DEVICE)?.u64(meta.device)?;
    if meta.links != 1 {
        cbor.u64(LINKS)?.u64(meta.links)?;
    }
    if meta.size != 0 {
        cbor.u64(SIZE)?.u64(meta.size)?;
    }
    if let Some(recipe) = recipe {
        cbor.u64(RECIPE)?;
        encode_recipe(cbor, recipe)?;
    }
    if let Some(target) = target {
        cbor.u64(SYMLINK_TARGET)?.bytes(target)?;
    }
    if let Some(device) = device {
        cbor.u64(DEVICE_NUMBER)?.array(2)?.u32(device.major)?.u32(device.minor)?;
    }
    if !meta.xattrs.is_empty() {
        cbor.u64(XATTRS)?.array(meta.xattrs.len() as u64 * 2)?;
        for xattr in &meta.xattrs {
            cbor.bytes(&xattr.name)?.bytes(&xattr.value)?;
        }
    }
    if entry.is_partial() {
        cbor.u64(PARTIAL)?.bool(true)?;
    }
    Ok(())
}

fn encode_recipe(
    cbor: &mut Cbor<'_>,
    recipe: &Recipe,
) -> Result<(), minicbor::encode::Error<std::convert::Infallible>> {
    let form = RecipeForm::of(&recipe.refs);
    let mut refs = Vec::new();
    form.put_refs(&mut refs, &recipe.refs);
    cbor.array(3)?.u8(form as u8)?.u8(recipe.depth)?.bytes(&refs)?;
    Ok(())
}

/// The entries of one chunk of a tree, at least one. Otherwise nodes that name an empty chunk a
/// thousandfold, level upon level, would keep a reader for ever without an entry.
pub fn unpack_entries(chunk: &[u8]) -> Result<Vec<Entry>, FormatError> {
    let mut unpacker = EntryUnpacker::default();
    let (mut entries, mut at) = (Vec::new(), 0);
    while at < chunk.len() {
        at = unpacker.unpack(chunk, at)?;
        entries.push(unpacker.entry().clone());
    }
    if entries.is_empty() { Err(FormatError::empty_tree_chunk()) } else { Ok(entries) }
}

/// Unpacks the entries of a tree in their order, each in the memory of the one before.
#[derive(Debug)]
pub struct EntryUnpacker {
    /// The last entry; its name is empty before the first.
    entry: Entry,
}

impl Default for EntryUnpacker {
    fn default() -> Self {
        let (name, kind, metadata) = (Vec::new(), EntryKind::Fifo, Metadata::default());
        Self { entry: Entry { name, kind, metadata } }
    }
}

impl EntryUnpacker {
    /// Unpacks the entry that begins at a place of a chunk, and returns where it ends.
    pub fn unpack(&mut self, chunk: &[u8], at: usize) -> Result<usize, FormatError> {
        let mut cbor = Decoder::new(&chunk[at..]);
        let fields = decode_entry(&mut cbor, &mut self.entry.metadata);
        let fields = fields.map_err(|error| FormatError::damaged("tree", error))?;
        let name = fields.name.unwrap_or_default();
        if !is_valid_name(name) {
            return Err(FormatError::damaged("tree", "a name that no entry can have"));
        }
        if name <= self.entry.name.as_slice() {
            return Err(FormatError::damaged("tree", "names out of order"));
        }
        let lacks = || FormatError::damaged("tree", "an entry lacks what its kind needs");
        fields.put_kind(&mut self.entry.kind)?.ok_or_else(lacks)?;
        self.entry.name.clear();
        self.entry.name.extend_from_slice(name);
        Ok(at + cbor.position())
    }

    /// The entry unpacked last, if that succeeded.
    pub fn entry(&self) -> &Entry {
        &self.entry
    }
}

/// What an entry has besides its metadata, in the order of its bytes.
#[derive(Default)]
struct EntryFields<'b> {
    name: Option<&'b [u8]>,
    kind: Option<u8>,
    recipe: Option<PackedRecipe<'b>>,
    target: Option<&'b [u8]>,
    device: Option<DeviceNumber>,
    partial: bool,
}

/// Unpacks an entry, its metadata in the memory of another's.
fn decode_entry<'b>(
    cbor: &mut Decoder<'b>,
    meta: &mut Metadata,
) -> Result<EntryFields<'b>, CborError> {
    use entry_key::*;
    let mut fields = EntryFields::default();
    let (mut user, mut group) = (None, None);
    *meta = Metadata {
        user: meta.user.take(),
        group: meta.group.take(),
        links: 1,
        ..Metadata::default()
    };
    decode_map(cbor, |cbor, key| {
        match key {
            NAME => fields.name = Some(quick::bytes(cbor)?),
            KIND => fields.kind = Some(quick::uint(cbor)?),
            MODE => meta.mode = quick::uint(cbor)?,
            UID => meta.uid = quick::uint(cbor)?,
            GID => meta.gid = quick::uint(cbor)?,
            USER => user = Some(quick::text(cbor)?),
            GROUP => group = Some(quick::text(cbor)?),
            MTIME => meta.mtime = Timestamp(quick::int(cbor)?),
            CTIME => meta.ctime = Timestamp(quick::int(cbor)?),
            INODE => meta.inode = quick::uint(cbor)?,
            DEVICE => meta.device = quick::uint(cbor)?,
            LINKS => meta.links = quick::uint(cbor)?,
            SIZE => meta.size = quick::uint(cbor)?,
            RECIPE => fields.recipe = Some(PackedRecipe::decode(cbor)?),
            SYMLINK_TARGET => fields.target = Some(cbor.bytes()?),
            DEVICE_NUMBER => {
                expect_array(cbor, 2)?;
                fields.device = Some(DeviceNumber { major: cbor.u32()?, minor: cbor.u32()? });
            }
            XATTRS => meta.xattrs = decode_xattrs(cbor)?,
            PARTIAL => fields.partial = cbor.bool()?,
            _ => cbor.skip()?,
        }
        Ok(())
    })?;
    put_owner(&mut meta.user, user);
    put_owner(&mut meta.group, group);
    Ok(fields)
}

/// Owners repeat from entry to entry: if a name equals the one before, that is reused.
fn put_owner(owner: &mut Option<Arc<str>>, name: Option<&str>) {
    if owner.as_deref() != name {
        *owner = name.map(Arc::from);
    }
}

impl EntryFields<'_> {
    /// Puts the kind in the memory of another; returns `None` if a field that it needs is missing.
    fn put_kind(&self, kind: &mut EntryKind) -> Result<Option<()>, FormatError> {
        let is = match self.kind {
            Some(kind_number::FILE) => {
                let content = take_recipe(kind);
                self.put_recipe(content)?.map(|content| EntryKind::File { content })
            }
            Some(kind_number::DIRECTORY) => {
                let tree = take_recipe(kind);
                let partial = self.partial;
                self.put_recipe(tree)?.map(|tree| EntryKind::Directory { tree, partial })
            }
            Some(kind_number::SYMLINK) => {
                self.target.map(|target| EntryKind::Symlink { target: target.to_vec() })
            }
            Some(kind_number::FIFO) => Some(EntryKind::Fifo),
            Some(kind_number::SOCKET) => Some(EntryKind::Socket),
            Some(kind_number::CHAR_DEVICE) => self.device.map(EntryKind::CharDevice),
            Some(kind_number::BLOCK_DEVICE) => self.device.map(EntryKind::BlockDevice),
            Some(number) => {
                let number = number.into();
                return Err(FormatError::Unknown { what: "kind of entry", number });
            }
            None => None,
        };
        Ok(is.map(|is| *kind = is))
    }

    /// The recipe, in the memory of another.
    fn put_recipe(&self, mut recipe: Recipe) -> Result<Option<Recipe>, FormatError> {
        let Some(packed) = &self.recipe else { return Ok(None) };
        packed.unpack_to(&mut recipe)?;
        Ok(Some(recipe))
    }
}

fn take_recipe(kind: &mut EntryKind) -> Recipe {
    match kind {
        EntryKind::File { content: recipe } | EntryKind::Directory { tree: recipe, .. } => {
            std::mem::take(recipe)
        }
        _ => Recipe::default(),
    }
}

/// A recipe whose references are still packed.
#[derive(Debug, Default)]
struct PackedRecipe<'b> {
    form: u64,
    /// As the next, of a known form only.
    depth: u8,
    refs: &'b [u8],
}

impl<'b> PackedRecipe<'b> {
    fn decode(cbor: &mut Decoder<'b>) -> Result<Self, CborError> {
        let items = cbor.array()?.filter(|items| *items > 0);
        let items = items.ok_or_else(|| CborError::message("a recipe without a form"))?;
        let form = quick::uint(cbor)?;
        if RecipeForm::from_number(form).is_err() {
            for _ in 1..items {
                cbor.skip()?;
            }
            return Ok(Self { form, ..Self::default() });
        }
        if items != 3 {
            return Err(CborError::message("an array of another length"));
        }
        let (depth, refs) = (quick::uint(cbor)?, quick::bytes(cbor)?);
        if depth > Recipe::DEPTH_MAX {
            return Err(CborError::message("a recipe deeper than any stream needs"));
        }
        Ok(Self { form, depth, refs })
    }

    /// Unpacks it in the memory of another.
    fn unpack_to(&self, recipe: &mut Recipe) -> Result<(), FormatError> {
        let form = RecipeForm::from_number(self.form)?;
        recipe.depth = self.depth;
        form.unpack_refs_to(self.refs, &mut recipe.refs)
    }
}

fn decode_xattrs(cbor: &mut Decoder<'_>) -> Result<Vec<Xattr>, CborError> {
    let items = cbor.array()?.ok_or_else(|| CborError::message("an array of unknown length"))?;
    if !items.is_multiple_of(2) {
        return Err(CborError::message("an attribute without a value"));
    }
    let mut xattrs = Vec::new();
    for _ in 0..items / 2 {
        xattrs.push(Xattr { name: cbor.bytes()?.to_vec(), value: cbor.bytes()?.to_vec() });
    }
    Ok(xattrs)
}

/// Reads a map of known length whose keys ascend.
pub fn decode_map<'b>(
    cbor: &mut Decoder<'b>,
    mut field: impl FnMut(&mut Decoder<'b>, u64) -> Result<(), CborError>,
) -> Result<(), CborError> {
    let pairs = cbor.map()?.ok_or_else(|| CborError::message("a map of unknown length"))?;
    let mut last = None;
    for _ in 0..pairs {
        let key = quick::uint(cbor)?;
        if last.is_some_and(|last| last >= key) {
            return Err(CborError::message("keys out of order"));
        }
        last = Some(key);
        field(cbor, key)?;
    }
    Ok(())
}

/// Reads an array of known length.
pub fn decode_array<'b, T>(
    cbor: &mut Decoder<'b>,
    mut item: impl FnMut(&mut Decoder<'b>) -> Result<T, CborError>,
) -> Result<Vec<T>, CborError> {
    if cbor.datatype()? != Type::Array {
        return Err(CborError::message("no array of known length"));
    }
    let count = cbor.array()?.unwrap_or(0);
    // Grown item by item: a hostile count exhausts the bytes before it exhausts memory.
    let mut items = Vec::new();
    for _ in 0..count {
        items.push(item(cbor)?);
    }
    Ok(items)
}

/// Reads the head of an array, which has this length.
pub fn expect_array(cbor: &mut Decoder<'_>, length: u64) -> Result<(), CborError> {
    if cbor.array()? == Some(length) {
        Ok(())
    } else {
        Err(CborError::message("an array of another length"))
    }
}
