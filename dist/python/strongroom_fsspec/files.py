"""Files that are open: one that is read by ranges, and one that is written as a stream."""

import io
from collections import deque

from fsspec.caching import BaseCache, register_cache
from fsspec.spec import AbstractBufferedFile

MIB = 1 << 20


class RunCache(BaseCache):
    """What was read of a file, as runs of bytes.

    Each start of the program takes time, so there are few: a small file is read whole; one that is
    read from front to back is one stream, which stays open; and what is read elsewhere meanwhile,
    such as the end of each tensor before its beginning, is a range of its own.
    """

    name = "strongroom"

    WHOLE_BYTES_MAX = 32 * MIB
    #: What is taken from the stream at least.
    PIECE_BYTES = 4 * MIB
    #: What is read elsewhere at least.
    RANGE_BYTES_MIN = MIB
    #: What is read there with it: archives are read from their last bytes towards their first.
    BEFORE_BYTES = MIB // 8
    #: A stream is read on to what is at most this far away.
    SKIPPED_BYTES_MAX = 32 * MIB
    #: Runs are kept up to this size; the last one always is.
    KEPT_BYTES_MAX = 128 * MIB

    def __init__(self, blocksize, fetcher, size, open_stream):
        super().__init__(blocksize, fetcher, size)
        self._open_stream = open_stream
        self._stream = None
        self._runs = deque()

    def close(self):
        """Ends the stream."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _fetch(self, start, stop):
        start = 0 if start is None else start
        stop = self.size if stop is None else min(stop, self.size)
        pieces = []
        while start < stop:
            begin, run = self._run_with(start) or self._read(start, stop)
            piece = run[start - begin : stop - begin]
            pieces.append(piece)
            start += len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _run_with(self, at):
        for begin, run in self._runs:
            if begin <= at < begin + len(run):
                self.hit_count += 1
                return begin, run
        return None

    def _read(self, start, stop):
        """Reads a run that begins at `start`, or before."""
        self.miss_count += 1
        if self.size <= self.WHOLE_BYTES_MAX:
            start, run = 0, self.fetcher(0, self.size)
        elif self._is_on_the_way(start):
            start, run = self._read_stream(stop)
        elif start == 0 or any(begin + len(run) == start for begin, run in self._runs):
            self.close()
            self._stream = self._open_stream(start)
            start, run = self._read_stream(stop)
        else:
            stop = min(max(stop, start + self.RANGE_BYTES_MIN), self.size)
            start = max(start - self.BEFORE_BYTES, 0)
            run = self.fetcher(start, stop)
        self.total_requested_bytes += len(run)
        self._runs.append((start, run))
        while len(self._runs) > 1 and sum(len(run) for _, run in self._runs) > self.KEPT_BYTES_MAX:
            self._runs.popleft()
        return start, run

    def _is_on_the_way(self, start):
        if self._stream is None or not self._stream.is_ours():
            return False
        return 0 <= start - self._stream.position <= self.SKIPPED_BYTES_MAX

    def _read_stream(self, stop):
        """What is between the stream's position and `stop`: it may be wanted later."""
        begin = self._stream.position
        size = max(stop - begin, self.PIECE_BYTES)
        return begin, self._stream.read(min(size, self.size - begin))


register_cache(RunCache, clobber=True)


class StoredFile(AbstractBufferedFile):
    """A file that is read. It stays the version that it was when it was opened."""

    def __init__(self, fs, path, stored, cache_type=RunCache.name, cache_options=None, **options):
        self._stored = stored
        cache_options = dict(cache_options or {})
        if cache_type == RunCache.name:
            cache_options["open_stream"] = lambda start: fs.stream_stored(stored, start)
        options.update(cache_type=cache_type, cache_options=cache_options)
        super().__init__(fs, path, "rb", size=stored.size, **options)

    def _fetch_range(self, start, end):
        return self.fs.read_stored(self._stored, start, end)

    def close(self):
        """Ends what is still being read."""
        if isinstance(getattr(self, "cache", None), RunCache):
            self.cache.close()
        super().close()


class WrittenFile(io.RawIOBase):
    """A file that is written. It becomes a snapshot when it is closed.

    If it is left by an exception, discarded, or collected as garbage before it was closed, there is
    no snapshot.
    """

    def __init__(self, fs, path, mode, autocommit, upload):
        super().__init__()
        self.fs, self.path, self.mode, self.autocommit = fs, path, mode, autocommit
        self._upload = upload
        #: The id of the snapshot, once there is one.
        self.snapshot = None

    @property
    def fileno(self):
        """There is none. PyTorch asks for one to sync it, and takes only this error for an answer."""
        raise AttributeError("fileno")

    def writable(self):
        return True

    def tell(self):
        self._check_open()
        return self._upload.bytes

    def write(self, data):
        self._check_open()
        return self._upload.write(data)

    def flush(self):
        """Does nothing: a part of a file cannot be seen, and is never a file."""

    def close(self):
        """Makes the snapshot."""
        if self.closed:
            return
        upload, self._upload = self._upload, None
        try:
            if upload is not None:
                self.snapshot = upload.finish()
        except BaseException:
            upload.abandon()
            raise
        finally:
            super().close()
            self.fs.written(self)

    def commit(self):
        """What was written in a transaction becomes visible."""
        self.close()
        if self.snapshot is not None:
            self.fs.commit([self.snapshot])

    def discard(self):
        """There is no file. What was stored already is not seen, and is forgotten."""
        upload, self._upload = self._upload, None
        if upload is not None:
            upload.abandon()
        self.close()
        if self.snapshot is not None and not self.autocommit:
            self.fs.give_up([self.snapshot])
        self.snapshot = None

    def __exit__(self, kind, value, traceback):
        if kind is not None and not self.closed:
            self.discard()
        self.close()

    def __del__(self):
        upload, self._upload = getattr(self, "_upload", None), None
        if upload is not None:
            upload.abandon()

    def _check_open(self):
        """Fails if nothing more can be written."""
        if self._upload is None:
            raise ValueError(f"the file {self.path} is closed, or was given up")


class WrittenText(io.TextIOWrapper):
    """Text that is written: it too is no file if it is left by an exception."""

    def __exit__(self, kind, value, traceback):
        if kind is not None and not self.closed:
            self.buffer.discard()
        self.close()
