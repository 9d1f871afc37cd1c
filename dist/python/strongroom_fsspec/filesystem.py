"""`StrongroomFileSystem`: what fsspec calls, as runs of the program and changes of labels."""

import logging
import os
import threading
import time
from datetime import datetime, timezone

from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.spec import AbstractFileSystem
from fsspec.utils import isfilelike, stringify_path

from .files import StoredFile, WrittenFile, WrittenText
from .naming import Naming
from .program import Program, StrongroomError
from .streams import Download, Upload, read_all
from .table import COMMITTED, FILE, PENDING, URL, Table, check_path, labels_of_paths
from .transaction import StrongroomTransaction

logger = logging.getLogger("fsspec.strongroom")


class StrongroomFileSystem(Naming, AbstractFileSystem):
    """Files in a repository.

    Parameters
    ----------
    repository, password_file, password_command, cache: str
        As the options of the program; without them it reads STRONGROOM_REPOSITORY and so on.
    program: str
        The program, if it is not `strongroom` in PATH.
    listings_expiry_time: float
        For how many seconds a listing is used again. It is read again at once if a path is not in
        it.
    """

    protocol = "strongroom"
    transaction_type = StrongroomTransaction

    def __init__(
        self,
        repository=None,
        password_file=None,
        password_command=None,
        cache=None,
        program="strongroom",
        listings_expiry_time=2.0,
        **options,
    ):
        super().__init__(**options)
        self.program = Program(
            program,
            repository=repository,
            password_file=password_file,
            password_command=password_command,
            cache=cache,
        )
        self.listings_expiry_time = listings_expiry_time
        self._lock = threading.RLock()
        self._table, self._table_read = None, 0.0
        self._made_folders = set()
        self._open_files = {}

    @classmethod
    def _strip_protocol(cls, path):
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        return stringify_path(path).removeprefix(URL).strip("/")

    # What there is.

    def info(self, path, **options):
        path = self._strip_protocol(path)
        table = self._table_with(path)
        stored = table.file(path)
        if stored is not None:
            return file_info(path, stored)
        if table.is_folder(path) or path in self._made_folders:
            return folder_info(path)
        raise FileNotFoundError(path)

    def exists(self, path, **options):
        """Unlike that of fsspec, it fails if the repository cannot be read."""
        try:
            self.info(path)
        except FileNotFoundError:
            return False
        return True

    def isdir(self, path):
        return self.exists(path) and self.info(path)["type"] == "directory"

    def isfile(self, path):
        return self.exists(path) and self.info(path)["type"] == "file"

    def ls(self, path, detail=True, **options):
        path = self._strip_protocol(path)
        if options.get("refresh"):
            self.invalidate_cache()
        info = self.info(path)
        infos = [info] if info["type"] == "file" else self._infos_in(path)
        return infos if detail else [info["name"] for info in infos]

    def _infos_in(self, folder):
        table, prefix = self._current_table(), folder + "/" if folder else ""
        paths = {prefix + name for name in table.folders.get(folder, ())}
        made = (path for path in self._made_folders if path.startswith(prefix))
        paths |= {prefix + path[len(prefix) :].partition("/")[0] for path in made}
        files = ((path, table.file(path)) for path in sorted(paths - {folder}))
        return [file_info(path, file) if file else folder_info(path) for path, file in files]

    def created(self, path):
        return self.info(path)["created"]

    def modified(self, path):
        return self.info(path)["mtime"]

    def ukey(self, path):
        """The id of the snapshot: another content is another snapshot."""
        return self.info(path)["snapshot"]

    def checksum(self, path):
        return int(self.ukey(path), 16)

    def invalidate_cache(self, path=None):
        with self._lock:
            self._table = None

    def _current_table(self, newer_than=0.0):
        """The listing, which is read again if it is too old."""
        with self._lock:
            oldest = max(time.monotonic() - self.listings_expiry_time, newer_than)
            if self._table is None or self._table_read < oldest:
                read = time.monotonic()
                self._table, self._table_read = Table(self.program.run("snapshots")), read
            return self._table

    def _table_with(self, path):
        """The listing; the newest if there is nothing at this path in an older one."""
        now = time.monotonic()
        table = self._current_table()
        if table.file(path) is None and not table.is_folder(path):
            table = self._current_table(newer_than=now)
        return table

    # What is read.

    def _open(self, path, mode="rb", block_size=None, autocommit=True, cache_options=None, **more):
        if mode == "rb":
            options = {name: more[name] for name in ("cache_type",) if name in more}
            stored = self._stored(path)
            return StoredFile(
                self, path, stored, block_size=block_size, cache_options=cache_options, **options
            )
        if mode not in ("wb", "xb"):
            raise NotImplementedError(f"mode {mode!r}: a stored file is read, or written whole")
        if mode == "xb" and self.exists(path):
            raise FileExistsError(path)
        check_path(path)
        labels = {FILE} | labels_of_paths([path])
        if not autocommit:
            labels.add(PENDING + self.transaction.id)
        upload = Upload(self.program, path.rpartition("/")[2], sorted(labels))
        file = WrittenFile(self, path, mode, autocommit, upload)
        with self._lock:
            self._open_files.setdefault(path, []).append(file)
        return file

    def cat_file(self, path, start=None, end=None, **options):
        stored = self._stored(self._strip_protocol(path))
        return self.read_stored(stored, *slice(start, end).indices(stored.size)[:2])

    def get_file(self, rpath, lpath, callback=DEFAULT_CALLBACK, outfile=None, **options):
        path = self._strip_protocol(rpath)
        if isfilelike(lpath):
            outfile = lpath
        if outfile is None and self.isdir(path):
            os.makedirs(lpath, exist_ok=True)
            return
        stored = self._stored(path)
        callback.set_size(stored.size)

        def take(piece):
            target.write(piece)
            callback.relative_update(len(piece))

        if outfile is not None:
            target = outfile
            read_all(self.program, cat_words(stored), take)
            return
        os.makedirs(os.path.dirname(os.path.abspath(lpath)), exist_ok=True)
        with open(lpath, "wb") as target:
            read_all(self.program, cat_words(stored), take)

    def read_stored(self, stored, start, end):
        """The bytes of a range of a file."""
        if start >= end:
            return b""
        pieces = []
        words = [*cat_words(stored), "--offset", str(start), "--length", str(end - start)]
        read_all(self.program, words, pieces.append)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def stream_stored(self, stored, start):
        """A file from this byte on, as a stream."""
        return Download(self.program, [*cat_words(stored), "--offset", str(start)], start)

    def _stored(self, path):
        """The file at a path."""
        stored = self._table_with(path).file(path)
        if stored is not None:
            return stored
        if self.isdir(path):
            raise IsADirectoryError(path)
        raise FileNotFoundError(path)

    # What is written.

    def open(self, path, mode="rb", **options):
        if "b" in mode or "r" in mode or options.get("compression"):
            return super().open(path, mode, **options)
        names = ("encoding", "errors", "newline")
        text = {name: options.pop(name) for name in names if name in options}
        return WrittenText(super().open(path, mode.replace("t", "") + "b", **options), **text)

    def written(self, file):
        """A file was closed, or given up."""
        with self._lock:
            files = self._open_files.get(file.path, [])
            self._open_files[file.path] = [other for other in files if other is not file]
            if not self._open_files[file.path]:
                del self._open_files[file.path]
        self.invalidate_cache()

    def commit(self, snapshots):
        """Makes files of the transaction visible, all at the same time."""
        if not snapshots:
            return
        # The one with the mark is changed last: until then all others are visible because of it.
        transaction, marked = self.transaction.id, snapshots[-1]
        pending, committed = PENDING + transaction, COMMITTED + transaction
        if len(snapshots) == 1:
            self._label(snapshots, remove=[pending])
            return
        self._label([marked], add=[committed])
        try:
            self._label(snapshots, remove=[pending, committed])
        except StrongroomError:
            logger.warning("labels of a committed transaction are left over", exc_info=True)

    def give_up(self, snapshots):
        """Forgets snapshots that were never visible."""
        self.program.run("forget", "--yes", *snapshots)

    def makedirs(self, path, exist_ok=False):
        path = self._strip_protocol(path)
        if not exist_ok and self.exists(path):
            raise FileExistsError(path)
        while path:
            self._made_folders.add(path)
            path = self._parent(path)

    def mkdir(self, path, create_parents=True, **options):
        self.makedirs(path)

    def rmdir(self, path):
        path = self._strip_protocol(path)
        if self.ls(path):
            raise OSError(f"the folder {path} is not empty")
        self._made_folders.discard(path)


def file_info(path, stored):
    """What fsspec wants to know of a file."""
    return {
        "name": path,
        "size": stored.size,
        "type": "file",
        "created": moment(stored.started),
        "mtime": moment(stored.ended),
        "snapshot": stored.snapshot,
        "host": stored.host,
    }


def folder_info(path):
    """What fsspec wants to know of a folder."""
    return {"name": path, "size": 0, "type": "directory"}


def cat_words(stored):
    """The command that writes a file."""
    return ["cat", f"{stored.snapshot}:{stored.inner}"]


def moment(text):
    """A time of the program, which has up to nine digits behind the seconds."""
    seconds, _, digits = text.removesuffix("Z").partition(".")
    parsed = datetime.fromisoformat(seconds).replace(tzinfo=timezone.utc)
    return parsed.replace(microsecond=int(digits[:6].ljust(6, "0") or 0))
