#!/usr/bin/env python3
"""Restores a snapshot of a Strongroom repository, with its passphrase and this file alone.

    restore.py REPOSITORY                         lists the snapshots
    restore.py REPOSITORY SNAPSHOT TARGET         restores one (a prefix of its id, or "latest")
    restore.py --check REPOSITORY                 reads everything and tells what is damaged

A snapshot of a put-only domain is read from the arenas of that domain alone (keys.md), unless
--foreign-chunks is given: for snapshots of before that rule.

The passphrase is taken from STRONGROOM_PASSWORD or asked for. Needs Python 3.11 and from PyPI
cryptography, zstandard and blake3. It is written to be read: it shows that the format can be read
by somebody else. It repairs nothing: parity and signatures are passed over (see parity.md).

The format, in short. Numbers are little-endian; each part has a document beside this file.

  repository  a folder: config, keys/SLOT, arenas/ARENA.G, snapshots/SNAPSHOT; config and slots have
              a second copy, NAME.copy.
  envelope    what every object is wrapped in: header (128) | body | table | parity | table |
              trailer. The trailer is the header again; the header has the body's length and hash.
  key slot    CBOR and a sealed secret; Argon2id makes of the passphrase the key that opens it: the
              master secret and the naming secret. Private key, authority key and the secret of each
              domain are derived from the first, fingerprint keys from the second. Every derivation
              is BLAKE3 in derive-key mode.
  seals       AES-256-GCM with a number as nonce; or HPKE to the repository's public key.
  snapshot    domain and tag, then sealed by HPKE: domain, tag and CBOR: time, host, paths, and the
              recipe of the tree of "/".
  recipe      [form, depth, refs]: at depth 0 the chunks that make a stream, else nodes: chunks
              that hold the form and the refs of one depth less.
  ref         form 0: fingerprint (32) | arena (16) | slot (4) | bytes of the stream it stands for
              (8). Form 1, of a repository that compares by value: the same without fingerprint.
              A fingerprint of zeros is a hole; in form 1 an arena of zeros.
  tree        a directory: a stream whose chunks hold entries, CBOR maps with small integer keys.
              A file's entry has the recipe of its content, a directory's that of its tree.
  arena       head (144) | summary | blocks | head. The head has the arena's key, sealed by HPKE.
              The summary, sealed with a derived key, says which slots each block holds.
  block       frame (16) | sealed: head (16), payload. The payload, perhaps compressed by zstd, is a
              directory of the chunks and then their bytes. Block n is sealed under number n.
  chunk       a run of bytes, named by its keyed BLAKE3-256: its fingerprint. Content and metadata
              are named under keys of their own, and are in arenas of their own. By value, the
              summary has the first 8 bytes of it, and zeros.
"""

import argparse
import functools
import getpass
import hmac
import os
import stat
import struct
import sys
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import NamedTuple

import zstandard
from blake3 import blake3
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

# envelope.md
CONFIG, KEY_SLOT, DATA_ARENA, METADATA_ARENA, SNAPSHOT, SESSION, TOMBSTONE = range(1, 8)
ENDING = 19
KINDS = (*range(CONFIG, TOMBSTONE + 1), *range(8, 12), 14, 17, 18, ENDING)
FILE_TREE, RECIPES_OF_PLACES = 0, 1  # snapshot.md
NAMING_LOCATION, REF_OF_FORM = 1, {0: "<32s16sIQ", 1: "<16sIQ"}  # repository.md, recipe.md
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
FILE, DIRECTORY, SYMLINK, FIFO, SOCKET, CHAR_DEVICE, BLOCK_DEVICE = range(7)  # tree.md


class Damaged(Exception):
    """Bytes that are not what was stored."""


PROOF_KEY = None  # of what says that it is newer: envelope.md; known once a slot is open


class Newer(Damaged):
    """Bytes that a newer program stored. They are not damaged, but not known here."""


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    arguments.add_argument("--check", action="store_true", help="read everything, restore nothing")
    arguments.add_argument("--foreign-chunks", action="store_true",
                           help="also restore what a snapshot names that its domain has not stored")
    arguments.add_argument("repository", type=Path)
    arguments.add_argument("snapshot", nargs="?")
    arguments.add_argument("target", nargs="?", type=Path)
    given = arguments.parse_args()
    if given.snapshot and not given.target:
        arguments.error("a target is needed")
    passphrase = os.environ.get("STRONGROOM_PASSWORD") or getpass.getpass("Passphrase: ")
    try:
        repository = Repository(given.repository, passphrase.encode())
        if given.check:
            return check(repository)
        if given.snapshot:
            return restore(repository, given.snapshot, given.target, given.foreign_chunks)
        return list_snapshots(repository)
    except (Damaged, OSError) as error:
        print(f"restore.py: {error}", file=sys.stderr)
        return 1


def order(snapshot: tuple):
    """By sequence, which is a snapshot's own count; its clock decides only between equals. What the
    owner took over from another program is older than the rest."""
    name, fields = snapshot
    taken_over = 20 in fields and not fields.get(14)
    return (0 if taken_over else fields.get(13, 0), fields[1], name)


def list_snapshots(repository) -> int:
    for snapshot_id, snapshot in repository.snapshots():
        started = EPOCH + timedelta(microseconds=snapshot[1] // 1000)
        paths = b" ".join(snapshot[5]).decode(errors="replace")
        partial = " (partial)" if snapshot.get(9) else ""
        print(f"{snapshot_id}  {started:%Y-%m-%d %H:%M:%S}  {snapshot[3]}  {paths}{partial}")
    return 0


# --- Restoring a tree: tree.md -----------------------------------------------------------------


def restore(repository, name: str, target: Path, foreign_chunks: bool) -> int:
    if name == "latest":  # of those that are complete
        complete = [s for s in repository.snapshots() if not s[1].get(9)]
        domains = {s[1].get(14, "") for s in complete}
        # Those of the owner, or of the only domain: another could choose what is restored.
        snapshots = [s for s in complete if len(domains) == 1 or not s[1].get(14)][-1:]
    else:
        snapshots = [s for s in repository.snapshots() if s[0].startswith(name)]
    if len(snapshots) != 1:
        raise Damaged(f"{name} names {len(snapshots)} snapshots")
    target.mkdir(parents=True, exist_ok=True)
    if any(target.iterdir()):
        raise FileExistsError(f"{target} is not empty")
    domain = snapshots[0][1].get(14)
    if domain and not foreign_chunks:
        repository.only_of = repository.keys.domain_id(domain)
    restoration = Restoration(repository, {}, 0)
    restoration.tree(snapshots[0][1][8], os.fsencode(target))
    return 1 if restoration.problems else 0


@dataclass
class Restoration:
    repository: "Repository"
    linked: dict  # what names of one file have in common -> path of the first of them
    problems: int

    def tree(self, recipe, folder: bytes):
        """What is in a directory. An entry that fails is told and passed over."""
        for chunk, _ in self.repository.stream(METADATA_ARENA, recipe):
            cbor = Cbor(chunk)
            while cbor.rest:
                entry = Entry(cbor.value())
                path = os.path.join(folder, entry.name)
                try:
                    self.entry(entry, path)
                except (Damaged, OSError) as error:
                    self.problems += 1
                    print(f"{os.fsdecode(path)}: {error}", file=sys.stderr)

    def entry(self, entry, path: bytes):
        first = self.linked.get(entry.link_key)
        if first is not None:
            os.link(first, path, follow_symlinks=False)
            return
        if entry.kind == DIRECTORY:
            os.mkdir(path, 0o700)
            self.tree(entry.recipe, path)
        elif entry.kind == FILE:
            self.file(entry, path)
        elif entry.kind == SYMLINK:
            os.symlink(entry.target, path)
        else:
            kinds = {FIFO: stat.S_IFIFO, SOCKET: stat.S_IFSOCK,
                     CHAR_DEVICE: stat.S_IFCHR, BLOCK_DEVICE: stat.S_IFBLK}
            os.mknod(path, kinds[entry.kind] | 0o600, os.makedev(*entry.device_number))
        put_metadata(entry, path)
        if entry.link_key is not None:
            self.linked[entry.link_key] = path

    def file(self, entry, path: bytes):
        with open(path, "xb") as file:
            for chunk, stream_bytes in self.repository.stream(DATA_ARENA, entry.recipe):
                if chunk is None:
                    file.seek(stream_bytes, os.SEEK_CUR)
                else:
                    file.write(chunk)
            file.truncate(file.tell())


class Entry:
    """A name in a directory: a CBOR map, its keys as in tree.md."""

    def __init__(self, fields: dict):
        self.name, self.kind, self.mode, self.uid, self.gid = (fields[key] for key in range(5))
        self.mtime = fields[7]
        self.recipe = fields.get(13)
        self.target = fields.get(14)
        self.device_number = fields.get(15, [0, 0])
        xattrs = iter(fields.get(16, []))
        self.xattrs = list(zip(xattrs, xattrs))
        # Names are one file if all but the name agrees: device, inode, ctime and all the rest.
        has_other_names = self.kind != DIRECTORY and fields.get(11, 1) > 1
        self.link_key = repr(sorted(fields.items())[1:]) if has_other_names else None
        if self.name in (b"", b".", b"..") or b"/" in self.name or b"\0" in self.name:
            raise Damaged(f"{self.name!r} is no name")


def put_metadata(entry, path: bytes):
    """Owner first, since it takes away capabilities and set-uid; times last."""
    if os.geteuid() == 0:
        os.chown(path, entry.uid, entry.gid, follow_symlinks=False)
    for name, value in entry.xattrs:
        os.setxattr(path, name, value, follow_symlinks=False)
    if entry.kind != SYMLINK:
        os.chmod(path, entry.mode)
    os.utime(path, ns=(entry.mtime, entry.mtime), follow_symlinks=False)


# --- The repository: repository.md, recipe.md ---------------------------------------------------


class Repository:
    def __init__(self, path: Path, passphrase: bytes):
        self.path = path
        # The domain whose arenas alone are read: only who has stored a chunk may name it in a
        # snapshot. The owner, who reads everything anyway, may name anything.
        self.only_of = None
        try:
            self.open(read_either(path / "config", CONFIG), passphrase)
        except Damaged:  # or changed by someone without a key; its copy may be right
            self.open(read_object(path / "config.copy", CONFIG), passphrase)

    def open(self, config: bytes, passphrase: bytes):
        fields, signature = split(config, len(config) - 64)
        config_fields = Cbor(fields).value()
        self.id = config_fields[0]
        self.by_value = config_fields[5] == NAMING_LOCATION
        self.keys = open_slots(self.path / "keys", passphrase, self.id, fields, signature)
        global PROOF_KEY
        PROOF_KEY = self.keys.envelope_key

    def snapshots(self) -> list:
        """Identifier and fields of each snapshot that opens and counts, oldest first."""
        found, counted = [], self.counted_of_ended()
        for path in (self.path / "snapshots").glob("*"):
            try:
                snapshot_id = bytes.fromhex(path.name)
                if read_header(path, None, snapshot_id).kind == TOMBSTONE:
                    continue
                sequence = read_header(path, SNAPSHOT, snapshot_id).sequence
                claim, sealed = split(read_object(path, SNAPSHOT, snapshot_id), 48)
                self.check_claim(snapshot_id, sequence, claim)
                opened = self.keys.open(b"strongroom v0 snapshot", snapshot_id, sealed)
                body = self.checked_snapshot(snapshot_id, opened, claim[:16], sequence)
                fields = Cbor(body).value()
                if snapshot_id not in counted.get(fields.get(14), (snapshot_id,)):
                    raise Damaged(f"its domain {fields[14]} has ended without it")
                found.append((path.name, fields))
            except (Damaged, OSError, ValueError) as error:
                print(f"{path}: {error}", file=sys.stderr)
        return sorted(found, key=order)

    def counted_of_ended(self) -> dict:
        """The snapshots that count, of each domain that has ended: ended.md."""
        endings = {}
        for path in (self.path / "ended").glob("*"):
            try:
                name = path.name.removesuffix(".copy")
                domain, number = name.split(".")
                opened = self.owners_own(path, "ended/" + name, ENDING, bytes.fromhex(domain))
                fields = Cbor(opened).value()
                if self.keys.domain_id(fields[1]).hex() == domain:
                    endings.setdefault(fields[1], {})[int(number)] = fields
            except (Damaged, OSError, ValueError) as error:
                print(f"{path}: {error}", file=sys.stderr)
        counted = {}
        for name, said in endings.items():
            replaced = {number for fields in said.values() for number in fields[3]}
            last = [fields for number, fields in said.items() if number not in replaced]
            counted[name] = {bytes(one) for fields in last for one in fields[2]}
        return counted

    def owners_own(self, path: Path, name: str, kind: int, object_id: bytes) -> bytes:
        """What only the owner makes and reads: signed, and sealed to the owner (keys.md)."""
        salt, sealed = split(read_object(path, kind, object_id), 16)
        place = self.id + name.encode()
        key = derive("strongroom v0 signed object", self.keys.voucher_key + place + salt)
        signature, content = split(open_sealed(AESGCM(key), 0, sealed, place), 64)
        if not self.keys.has_signed(b"strongroom v0 signed object", place + content, signature):
            raise Damaged("the owner did not make it")
        return self.keys.open(b"strongroom v0 private content", place, content)

    def check_claim(self, snapshot_id: bytes, sequence: int, claim: bytes):
        """The domain confirms the sequence in the header: domain, tag."""
        session_key = derive("strongroom v0 session key", self.keys.domain_secret(claim[:16]))
        message = self.id + snapshot_id + struct.pack("<Q", sequence)
        if not hmac.compare_digest(blake3(message, key=session_key).digest(), claim[16:]):
            raise Damaged("it is forged: the domain that it names did not make it")

    def checked_snapshot(self, snapshot_id: bytes, opened: bytes, claimed: bytes,
                         sequence: int) -> bytes:
        """The map of a snapshot, if the domain that it names made it: domain, tag, map."""
        domain, tag, body = opened[:16], opened[16:48], opened[48:]
        author = derive("strongroom v0 author key", self.keys.domain_secret(domain))
        if not hmac.compare_digest(blake3(self.id + snapshot_id + body, key=author).digest(), tag):
            raise Damaged("it is forged: the domain that it names did not make it")
        fields = Cbor(body).value()
        if self.keys.domain_id(fields.get(14, "")) != domain or domain != claimed:
            raise Damaged("it is forged: it has the name of another domain")
        if fields.get(13, 0) != sequence:
            raise Damaged("it is forged: its header has another sequence")
        if fields[0] != FILE_TREE or set(fields.get(16, [])) - {RECIPES_OF_PLACES}:
            raise Newer("a newer program made it: its kind or a feature of it is not known here")
        return body

    def stream(self, kind: int, recipe):
        """The chunks of a stream of data or metadata, in order; None and a length for a hole."""
        form, depth, refs = recipe
        if form not in REF_OF_FORM:
            raise Newer(f"a recipe of form {form}, which is not known here")
        for *fingerprint, arena, slot, stream_bytes in struct.iter_unpack(REF_OF_FORM[form], refs):
            fingerprint = fingerprint[0] if fingerprint else None
            if not any(fingerprint if form == 0 else arena):
                yield None, stream_bytes
            elif depth == 0:
                yield self.chunk(kind, fingerprint, arena, slot), stream_bytes
            else:
                node = self.chunk(METADATA_ARENA, fingerprint, arena, slot)
                yield from self.stream(kind, (node[0], depth - 1, node[1:]))

    def chunk(self, kind: int, fingerprint: bytes, arena: bytes, slot: int) -> bytes:
        """A chunk of data or metadata, from where its ref says, else from where a summary says."""
        if kind_of(arena) != kind:
            raise Damaged(f"arena {arena.hex()} is of the other kind, data or metadata")
        try:
            return self.chunk_at(fingerprint, arena, slot)
        except (Damaged, OSError):
            if self.index.get(fingerprint, (arena, slot)) == (arena, slot):
                raise
            return self.chunk_at(fingerprint, *self.index[fingerprint])

    def chunk_at(self, fingerprint: bytes | None, arena: bytes, slot: int) -> bytes:
        """A chunk in its place: from any generation that counts, for an arena is their union."""
        return first_of(self.of_generation(found, slot, fingerprint)
                        for found in self.generations_with(arena, slot))

    def of_generation(self, arena: "Arena", slot: int, fingerprint: bytes | None):
        """What reads a chunk of one generation and holds it against its name or its tag."""
        def read() -> bytes:
            expected = arena.slots[slot] if fingerprint is None else fingerprint
            stored = arena.chunk(slot)
            chunk = self.expand(stored) if stored.bases else stored.data
            found = blake3(chunk, key=self.keys.fingerprint_keys[arena.kind]).digest()
            if self.by_value:
                found = found[:8] + bytes(24)
            if found != expected:
                raise Damaged(f"slot {slot} of arena {arena.id.hex()} holds other bytes")
            return chunk
        return read

    def expand(self, delta: "Stored") -> bytes:
        """The chunk that a delta makes of its bases, which are stored whole."""
        bases = [first_of(functools.partial(found.chunk, slot)
                          for found in self.generations_with(arena, slot))
                 for arena, slot in delta.bases]
        if any(base.bases for base in bases):
            raise Damaged("a delta of a delta")
        return apply_delta(delta.data, b"".join(base.data for base in bases), delta.chunk_bytes)

    def generations_with(self, arena: bytes, slot: int) -> list:
        """The generations of an arena that count and have a slot."""
        found = [each for each in self.counting(arena) if any(each.slots.get(slot, b""))]
        if not found:
            raise Damaged(f"arena {arena.hex()} has lost slot {slot}")
        return found

    @functools.lru_cache(maxsize=16)
    def counting(self, arena: bytes) -> list:
        """The generations of an arena that count, in the order in which they are tried. Of several
        some may be planted. Vouchers are not looked at."""
        found, failure = [], Damaged(f"arena {arena.hex()} is missing")
        for generation in sorted(self.generations.get(arena, {0}), key=lambda g: (g > 0, -g)):
            try:
                path = self.path / "arenas" / f"{arena.hex()}.{generation}"
                found.append(Arena(path, arena, generation, self.keys))
            except (Damaged, OSError) as error:
                failure = error
        if not found:
            raise failure
        if len({each.domain for each in found}) > 1:
            known = [each for each in found if not any(each.domain)]
            known += [each for each in found if each.is_marked]
            known += [each for each in found if each.generation == 0]
            if not known:
                raise Damaged(f"arena {arena.hex()} is claimed by several domains")
            found = [each for each in found if each.domain == known[0].domain]
        marked = [each for each in found if each.is_marked]
        first = [each for each in found
                 if each.generation == 0 and not any(map(each.contradicts, marked))]
        counting = first + marked
        if counting:
            # What has no mark and contradicts nothing comes last.
            unmarked = [each for each in found if each not in counting
                        and not any(map(each.contradicts, counting))]
            found = counting + unmarked
        if self.only_of not in (None, found[0].domain):
            raise Damaged(f"arena {arena.hex()} is not of the domain whose snapshot names it")
        return found

    @functools.cached_property
    def generations(self) -> dict:
        """The generations of each arena that exist."""
        found = {}
        for path in (self.path / "arenas").glob("*.*"):
            arena, generation = path.name.split(".", 1)
            if is_id(arena, 16) and generation.isdecimal():
                found.setdefault(bytes.fromhex(arena), set()).add(int(generation))
        return found

    @functools.cached_property
    def index(self) -> dict:
        """Where each chunk is, from the summaries of all arenas that can be read."""
        locations = {}
        for arena in self.generations:
            try:
                for found in self.counting(arena):
                    locations |= {name: (arena, slot) for slot, name in found.slots.items()}
            except (Damaged, OSError, ValueError):
                continue
        return locations


def first_of(readers):
    """The result of the first that succeeds, else the first failure."""
    failures = []
    for read in readers:
        try:
            return read()
        except (Damaged, OSError) as error:
            failures.append(error)
    raise failures[0]


def is_id(name: str, length: int) -> bool:
    """Whether this is an identifier of so many bytes; what else lies in a folder is ignored."""
    return len(name) == 2 * length and set(name) <= set("0123456789abcdef")


# --- Arenas: arena.md ---------------------------------------------------------------------------


def kind_of(arena_id: bytes) -> int:
    return METADATA_ARENA if arena_id[0] & 0x80 else DATA_ARENA


class Block(NamedTuple):
    """A block, as the summary tells it."""

    number: int
    first_slot: int
    chunk_count: int
    raw_bytes: int
    sealed_bytes: int
    offset: int
    codec: int


class Stored(NamedTuple):
    """A chunk as it stands in a block: its bytes, or with bases a delta."""

    data: bytes
    chunk_bytes: int
    bases: list


class Arena:
    HEAD_BYTES, FRAME_BYTES, BLOCK_HEAD_BYTES = 144, 16, 16

    def __init__(self, path: Path, arena_id: bytes, generation: int, keys):
        self.path, self.id = path, arena_id
        self.kind = kind_of(arena_id)
        header = read_header(path, self.kind, arena_id)
        if header.generation != generation:
            raise Damaged(f"{path}: another generation is in its place")
        first = read_at(path, Header.BYTES, self.HEAD_BYTES)
        last = read_at(path, Header.BYTES + header.body_bytes - self.HEAD_BYTES, self.HEAD_BYTES)
        head = first if checksum_is_right(first) else last
        magic, suite, _, _, _, summary_bytes, sealed_key, domain, salt = struct.unpack_from(
            "<8sB3sIQQ80s16s12s", head)
        if not checksum_is_right(head) or magic != b"ARENA HD" or suite != 1:
            raise Damaged(f"{path}: its head is damaged")
        key = keys.open(b"strongroom v0 arena key", arena_id, sealed_key)
        if any(salt):
            key = derive("strongroom v0 arena blocks", key + salt)
        self.key, self.domain = AESGCM(key), domain
        summary_start = Header.BYTES + self.HEAD_BYTES
        self.blocks_start = summary_start + summary_bytes
        sealed = read_at(path, summary_start, summary_bytes)
        summary, mark = open_summary(sealed, header, domain, keys.summary_key(domain))
        self.generation = generation
        claim = (arena_id + struct.pack("<I", generation) + header.session
                 + struct.pack("<Q", header.sequence) + domain + blake3(summary).digest())
        self.is_marked = generation > 0 and keys.has_signed(
            b"strongroom v0 arena generation", claim, mark)
        self.read_summary(summary)

    def read_summary(self, summary: bytes):
        magic, _, blocks, slots, _ = struct.unpack_from("<4s4I", summary)
        if magic != b"SUM.":
            raise Damaged(f"{self.path}: its summary is damaged")
        fingerprints = 20 + blocks * 28
        self.blocks = [Block(*fields) for fields in
                       struct.iter_unpack("<7I", summary[20:fingerprints])]
        numbers = (slot for block in self.blocks
                   for slot in range(block.first_slot, block.first_slot + block.chunk_count))
        names = (summary[at:at + 32] for at in range(fingerprints, fingerprints + slots * 32, 32))
        self.slots = dict(zip(numbers, names, strict=True))

    def contradicts(self, other: "Arena") -> bool:
        """Whether a slot has another name there, or is in a block of another number."""
        def places(arena):
            return {slot: block.number for block in arena.blocks
                    for slot in range(block.first_slot, block.first_slot + block.chunk_count)}
        own, others = places(self), places(other)
        return any(others.get(slot, number) != number
                   or any(name := other.slots.get(slot, b"")) and any(self.slots[slot])
                   and name != self.slots[slot]
                   for slot, number in own.items())

    def chunk(self, slot: int) -> Stored:
        for block in self.blocks:
            if block.first_slot <= slot < block.first_slot + block.chunk_count:
                return self.open_block(block)[slot - block.first_slot]
        raise Damaged(f"arena {self.id.hex()} has lost slot {slot}")

    @functools.lru_cache(maxsize=4)
    def open_block(self, block: Block) -> list:
        """The chunks of a block."""
        at = self.blocks_start + block.offset
        frame = read_at(self.path, at, self.FRAME_BYTES)
        sealed = read_at(self.path, at + self.FRAME_BYTES, block.sealed_bytes)
        try:
            payload = open_sealed(self.key, block.number, sealed, frame[:12] + self.id)
            payload = payload[self.BLOCK_HEAD_BYTES:]
            if block.codec == 1:
                payload = decompress(payload, block.raw_bytes)
        except Damaged as error:
            raise Damaged(f"block {block.number} of arena {self.id.hex()}: {error}") from None
        entries, at = [], 0
        for _ in range(block.chunk_count):
            stored_bytes, chunk_bytes, base_count = struct.unpack_from("<3I", payload, at)
            at += 12
            bases = list(struct.iter_unpack("<16sI", payload[at:at + 20 * base_count]))
            at += 20 * base_count
            entries.append((stored_bytes, chunk_bytes, bases))
        chunks = []
        for stored_bytes, chunk_bytes, bases in entries:
            chunks.append(Stored(payload[at:at + stored_bytes], chunk_bytes, bases))
            at += stored_bytes
        return chunks


def apply_delta(delta: bytes, basis: bytes, chunk_bytes: int) -> bytes:
    """delta.md"""
    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte, at = delta[at], at + 1
            value |= (byte & 0x7f) << shift
            shift += 7
            if byte < 0x80:
                return value

    kind, at = delta[0], 1
    if kind > 1:
        raise Damaged(f"a delta of the unknown kind {kind}")
    start = number() if kind == 1 else 0
    ops_bytes = number()
    literals = ops_end = at + ops_bytes
    if kind == 1:
        chunk, done = bytearray(basis[start:start + chunk_bytes].ljust(chunk_bytes, b"\0")), 0
        while at < ops_end:
            done += number()
            for _ in range(number()):
                chunk[done] ^= delta[literals]
                done, literals = done + 1, literals + 1
        return bytes(chunk)
    chunk, basis_end = bytearray(), 0
    while at < ops_end:
        literal_bytes, copy_bytes = number(), number()
        chunk += delta[literals:literals + literal_bytes]
        literals += literal_bytes
        if copy_bytes:
            zigzag = number()
            start = basis_end + literal_bytes + (zigzag >> 1 ^ -(zigzag & 1))
            basis_end = start + copy_bytes
            chunk += basis[start:basis_end]
    if len(chunk) != chunk_bytes:
        raise Damaged("a delta makes a chunk of another length")
    return bytes(chunk)


def open_summary(sealed: bytes, header: "Header", domain: bytes, summary_key: bytes) -> tuple:
    """The summary, and what may be the owner's mark."""
    context = "strongroom v0 arena summary"
    salt, generation = sealed[:16], struct.pack("<I", header.generation)
    key = derive(context, summary_key + header.id + generation + salt)
    aad = (header.id + generation + header.session + struct.pack("<Q", header.sequence)
           + domain + struct.pack("<Q", len(sealed)))
    opened = open_sealed(AESGCM(key), 0, sealed[16:], aad)
    length, compressed_bytes = struct.unpack_from("<II", opened)
    end = 8 + compressed_bytes
    return decompress(opened[8:end], length), opened[end:end + 64]


# --- Keys and seals: keys.md --------------------------------------------------------------------


class Keys:
    """What follows from the master secret and the naming secret."""

    def __init__(self, master_secret: bytes, naming_secret: bytes):
        self.master_secret = master_secret
        private_key = derive("strongroom v0 private key", master_secret)
        self.private_key = X25519PrivateKey.from_private_bytes(private_key)
        authority = derive("strongroom v0 authority key", master_secret)
        self.authority = Ed25519PrivateKey.from_private_bytes(authority).public_key()
        self.envelope_key = derive("strongroom v0 envelope key", naming_secret)
        self.voucher_key = derive("strongroom v0 voucher key", naming_secret)
        self.fingerprint_keys = {
            DATA_ARENA: derive("strongroom v0 data fingerprint key", naming_secret),
            METADATA_ARENA: derive("strongroom v0 metadata fingerprint key", naming_secret),
        }

    def summary_key(self, domain: bytes) -> bytes:
        return derive("strongroom v0 summary key", self.domain_secret(domain))

    def domain_id(self, name: str) -> bytes:
        key = derive("strongroom v0 domain names key", self.master_secret)
        return blake3(name.encode(), key=key).digest()[:16] if name else bytes(16)

    def domain_secret(self, domain: bytes) -> bytes:
        return derive("strongroom v0 domain secret", self.master_secret + domain)

    def has_signed(self, context: bytes, message: bytes, signature: bytes) -> bool:
        try:
            self.authority.verify(signature, context + b"\0" + message)
            return True
        except (InvalidSignature, ValueError):
            return False

    def open(self, info: bytes, aad: bytes, sealed: bytes) -> bytes:
        """Opens HPKE (RFC 9180), base mode: X25519, HKDF-SHA256, ChaCha20-Poly1305."""
        encapsulated, ciphertext = sealed[:32], sealed[32:]
        exchanged = self.private_key.exchange(X25519PublicKey.from_public_bytes(encapsulated))
        kem, suite = b"KEM\x00\x20", b"HPKE\x00\x20\x00\x01\x00\x03"
        public_key = self.private_key.public_key().public_bytes_raw()
        prk = labeled_extract(kem, b"", b"eae_prk", exchanged)
        shared = labeled_expand(kem, prk, b"shared_secret", encapsulated + public_key, 32)
        context = (b"\x00" + labeled_extract(suite, b"", b"psk_id_hash", b"")
                   + labeled_extract(suite, b"", b"info_hash", info))
        secret = labeled_extract(suite, shared, b"secret", b"")
        key = labeled_expand(suite, secret, b"key", context, 32)
        nonce = labeled_expand(suite, secret, b"base_nonce", context, 12)
        try:
            return ChaCha20Poly1305(key).decrypt(nonce, ciphertext, aad)
        except InvalidTag:
            raise Damaged("it does not open: damaged, or not of this repository") from None


def labeled_extract(suite: bytes, salt: bytes, label: bytes, secret: bytes) -> bytes:
    return hmac.digest(salt or bytes(32), b"HPKE-v1" + suite + label + secret, "sha256")


def labeled_expand(suite: bytes, prk: bytes, label: bytes, info: bytes, length: int) -> bytes:
    labeled = length.to_bytes(2, "big") + b"HPKE-v1" + suite + label + info
    return hmac.digest(prk, labeled + b"\x01", "sha256")[:length]


def open_slots(folder: Path, passphrase: bytes, repository_id: bytes, config: bytes,
               signature: bytes) -> Keys:
    """The keys, from the first slot that the passphrase opens and whose owner signed the config."""
    opened = may_only_store = False
    names = {path.name.removesuffix(".copy") for path in folder.glob("*")}
    # What else lies there, or was put there, keeps nobody from the others.
    for name in sorted(name for name in names if is_id(name, 8)):
        slot_id = bytes.fromhex(name)
        try:
            body = read_either(folder / name, KEY_SLOT, slot_id.ljust(16, b"\0"))
            cbor = Cbor(body)
            slot, sealed = cbor.value(), bytes(cbor.rest)
            memory_kib, passes, lanes = slot[3]
            if memory_kib > 1 << 20 or memory_kib * passes > 16 << 20 or lanes > 64:
                raise Damaged("no slot of ours costs as much")
            kdf = Argon2id(salt=slot[4], length=32, iterations=passes, lanes=lanes,
                           memory_cost=memory_kib)
            key = kdf.derive(passphrase)
            if derive("strongroom v0 slot commitment", key + slot_id) != slot[5]:
                continue
            clear = body[:len(body) - len(sealed)]
            secret = open_sealed(AESGCM(key), 0, sealed, repository_id + slot_id + clear)
            if secret[0] != 0:
                may_only_store = True
                continue
            keys, opened = Keys(secret[1:33], secret[33:]), True
            if keys.has_signed(b"strongroom v0 configuration", config, signature):
                return keys
        except (Damaged, OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            print(f"{folder / name}: {error!r}", file=sys.stderr)
    if opened:
        raise Damaged("the configuration was not signed by the owner")
    raise Damaged("this passphrase may only store, not read" if may_only_store
                  else "the passphrase opens no key slot")


def split(data: bytes, length: int) -> tuple[bytes, bytes]:
    return data[:length], data[length:]


def derive(context: str, secret: bytes) -> bytes:
    return blake3(secret, derive_key_context=context).digest()


def open_sealed(key: AESGCM, number: int, sealed: bytes, aad: bytes) -> bytes:
    try:
        return key.decrypt(struct.pack("<QI", number, 0), sealed, aad)
    except (InvalidTag, ValueError):
        raise Damaged("authentication failed") from None


def decompress(compressed: bytes, length: int) -> bytes:
    try:
        plain = zstandard.ZstdDecompressor().decompress(compressed, max_output_size=length)
    except zstandard.ZstdError as error:
        raise Damaged(str(error)) from None
    if len(plain) != length:
        raise Damaged("it decompresses to another length")
    return plain


# --- Objects: envelope.md -----------------------------------------------------------------------


class Header(NamedTuple):
    magic: bytes
    version: int
    kind: int
    shard_bytes_log2: int
    generation: int
    id: bytes
    session: bytes
    sequence: int
    body_bytes: int
    parity_shards: int
    required_features: int
    body_hash: bytes
    proof: bytes
    checksum: int

    BYTES = 128

    def claims_newness(self) -> bool:
        return self.version > 0 or self.kind not in KINDS or self.required_features != 0


def proof_of(packed: bytes, key: bytes) -> bytes:
    return blake3(packed[:104], key=key).digest()[:20]


def read_header(path: Path, kind: int | None, object_id: bytes | None = None) -> Header:
    """The header, from whichever end of the object it can be read."""
    for offset in (0, path.stat().st_size - Header.BYTES):
        packed = read_at(path, max(offset, 0), Header.BYTES)
        if packed[:8] == b"STRONGRM" and checksum_is_right(packed):
            header = Header(*struct.unpack("<8sHBBI16s16sQQII32s20sI", packed))
            if header.claims_newness():
                if PROOF_KEY is None or header.proof == proof_of(packed, PROOF_KEY):
                    raise Newer(f"{path}: a newer program made it: not damaged, but not known here")
                # Somebody without a key says so. The seals decide what it is.
                kind_by_name = header.kind if header.kind in KINDS else kind or SNAPSHOT
                header = header._replace(version=0, required_features=0, kind=kind_by_name)
            if kind not in (None, header.kind) or object_id not in (None, header.id):
                raise Damaged(f"{path}: another object stands in its place")
            return header
    raise Damaged(f"{path}: neither header nor trailer can be read")


def read_object(path: Path, kind: int, object_id: bytes | None = None) -> bytes:
    header = read_header(path, kind, object_id)
    body = read_at(path, Header.BYTES, header.body_bytes)
    if blake3(body).digest() != header.body_hash:
        raise Damaged(f"{path}: its body is damaged; parity is not looked at here")
    return body


def read_either(path: Path, kind: int, object_id: bytes | None = None) -> bytes:
    """The body of a small object, or of its copy."""
    try:
        return read_object(path, kind, object_id)
    except (Damaged, OSError):
        return read_object(path.with_name(path.name + ".copy"), kind, object_id)


def read_at(path: Path, offset: int, length: int) -> bytes:
    with open(path, "rb") as file:
        file.seek(offset)
        found = file.read(length)
    if len(found) != length:
        raise Damaged(f"{path}: it is too short")
    return found


def checksum_is_right(packed: bytes) -> bool:
    """Whether the last four bytes are the CRC-32C of those before."""
    crc = 0xFFFFFFFF
    for byte in packed[:-4]:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF == int.from_bytes(packed[-4:], "little")


# --- CBOR: RFC 8949, of it what the format uses -------------------------------------------------


class Cbor:
    """Decodes integers, byte and text strings, arrays, maps, true and false, in turn."""

    def __init__(self, data: bytes):
        self.rest = memoryview(data)

    def value(self):
        try:
            return self.item()
        except (IndexError, UnicodeDecodeError, TypeError):
            raise Damaged("damaged CBOR") from None

    def item(self):
        initial = self.take(1)[0]
        major, argument = initial >> 5, initial & 0x1F
        if major == 7:
            return {20: False, 21: True}[argument] if argument in (20, 21) else self.refuse()
        if argument >= 24:
            argument = int.from_bytes(self.take(1 << argument - 24), "big") \
                if argument < 28 else self.refuse()
        match major:
            case 0:
                return argument
            case 1:
                return -1 - argument
            case 2:
                return self.take(argument)
            case 3:
                return self.take(argument).decode()
            case 4:
                return [self.item() for _ in range(argument)]
            case 5:
                return {self.item(): self.item() for _ in range(argument)}
        return self.refuse()

    def take(self, length: int) -> bytes:
        taken, self.rest = bytes(self.rest[:length]), self.rest[length:]
        return taken if len(taken) == length else self.refuse()

    def refuse(self):
        raise Damaged("CBOR that the format does not use, or that ends too early")


# --- Checking all -------------------------------------------------------------------------------


def check(repository) -> int:
    """Reads every object, opens every block, and holds every chunk against its summary."""
    folders = {"config*": CONFIG, "keys/*": KEY_SLOT, "snapshots/*": SNAPSHOT, "arenas/*": None}
    objects = [(path, kind) for pattern, kind in folders.items()
               for path in sorted(repository.path.glob(pattern))]
    damaged = 0
    for path, kind in objects:
        if path.name.startswith("."):
            continue  # of a writer at work or killed
        try:
            if kind is None:
                check_arena(repository, path)
            else:
                read_object(path, kind)
        except (Damaged, OSError, ValueError) as error:
            damaged += 1
            print(f"{path}: {error}", file=sys.stderr)
    print(f"{len(objects)} objects, {damaged} damaged")
    return 1 if damaged else 0


def check_arena(repository, path: Path):
    arena_id, generation = path.name.split(".", 1)
    arena = Arena(path, bytes.fromhex(arena_id), int(generation), repository.keys)
    read_object(path, arena.kind, arena.id)
    for slot, fingerprint in arena.slots.items():
        if not any(fingerprint):
            # A collection has taken the chunk out, or it is not known what it was.
            continue
        repository.of_generation(arena, slot, fingerprint)()


if __name__ == "__main__":
    sys.exit(main())
