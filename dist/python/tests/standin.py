"""A stand-in for PyTorch's distributed checkpoint, whose wheel is too large for a test.

It makes the calls that FsspecWriter and FsspecReader make of a file system, in their order, as they
are written in torch/distributed/checkpoint (with and without transformed streams): one file for
each rank, with tensors one behind the other, each a zip archive as `torch.save` writes it; then
`.metadata` by way of `.metadata.tmp`. A tensor is an array of bytes here, and a folder takes the
place of the network between the ranks.

    python standin.py save URL RANK RANKS SEED FOLDER [--hang]
    python standin.py load URL RANK RANKS SEED
"""

import io
import json
import os
import pickle
import sys
import time
import zipfile
from contextlib import contextmanager
from pathlib import Path

import support  # noqa: F401  It registers the file system.
from fsspec.core import url_to_fs

TENSORS = 6
TENSOR_BYTES = int(os.environ.get("STANDIN_TENSOR_BYTES", 600_000))
WAIT_SECONDS = float(os.environ.get("STANDIN_WAIT_SECONDS", 60))


def tensor(seed, number):
    """All of a tensor. Half of them are frozen: they are the same in each checkpoint."""
    return support.noise(number if number % 2 else 1000 * seed + number, TENSOR_BYTES)


def shard(rank, ranks):
    """The part of each tensor that a rank has."""
    return rank * TENSOR_BYTES // ranks, (rank + 1) * TENSOR_BYTES // ranks


@contextmanager
def create_stream(fs, path, mode):
    """As `FileSystem.create_stream`: the file is removed while it is still open."""
    with fs.open(path, mode) as stream:
        try:
            yield stream
        except BaseException:
            if "w" in mode:
                try:
                    fs.rm(path)
                except Exception:
                    pass
            raise


def sync(stream, taken):
    """As the writers do; the answers that they take differ."""
    try:
        os.fsync(stream.fileno())
    except taken:
        pass  # PyTorch calls os.sync, which takes long on a busy machine and does nothing here.


def save(url, rank, ranks, seed, folder, hang):
    fs, _ = url_to_fs(url)
    fs.makedirs(url, exist_ok=True)
    fs.exists(os.path.join(url, ".metadata"))
    name, results = f"__{rank}_0.distcp", []
    begin, end = shard(rank, ranks)
    with create_stream(fs, os.path.join(url, name), "wb") as stream:
        for number in range(TENSORS):
            offset, archive = stream.tell(), io.BytesIO()
            with zipfile.ZipFile(archive, "w") as packed:
                packed.writestr("data", tensor(seed, number)[begin:end])
            stream.write(archive.getbuffer())
            stream.flush()
            results.append((number, (begin, end), name, offset, stream.tell() - offset))
            if hang and number == TENSORS // 2:
                Path(folder, "hangs").touch()
                time.sleep(600)
        sync(stream, (AttributeError, io.UnsupportedOperation))
    part = Path(folder, f"{rank}.part")
    part.write_bytes(pickle.dumps(results))
    part.rename(Path(folder, f"{rank}.results"))
    if rank == 0:
        finish(fs, url, [received(folder, other) for other in range(ranks)])
    return fs


def received(folder, rank):
    """What another rank says that it wrote."""
    path, waited = Path(folder, f"{rank}.results"), time.monotonic()
    while not path.exists():
        if time.monotonic() - waited > WAIT_SECONDS:
            raise TimeoutError(f"rank {rank} is gone")
        time.sleep(0.01)
    return pickle.loads(path.read_bytes())


def finish(fs, url, results):
    metadata = os.path.join(url, ".metadata")
    with create_stream(fs, metadata + ".tmp", "wb") as stream:
        pickle.dump([result for of_rank in results for result in of_rank], stream)
        sync(stream, AttributeError)
    if fs.exists(metadata):
        fs.rm(metadata)
    fs.rename(metadata + ".tmp", metadata)


class View(io.RawIOBase):
    """A part of a file, as `_create_file_view` gives it."""

    def __init__(self, stream, offset, length):
        self.stream, self.offset, self.length, self.at = stream, offset, length, 0

    def readable(self):
        return True

    def seekable(self):
        return True

    def tell(self):
        return self.at

    def seek(self, at, whence=0):
        self.at = at + (0, self.at, self.length)[whence]
        return self.at

    def readinto(self, buffer):
        self.stream.seek(self.offset + self.at)
        data = self.stream.read(min(len(buffer), self.length - self.at))
        buffer[: len(data)] = data
        self.at += len(data)
        return len(data)


def load(url, rank, ranks, seed):
    fs, _ = url_to_fs(url)
    with create_stream(fs, os.path.join(url, ".metadata"), "rb") as stream:
        metadata = pickle.load(stream)
    wanted_begin, wanted_end = shard(rank, ranks)
    loaded = [bytearray(wanted_end - wanted_begin) for _ in range(TENSORS)]
    for name in sorted({result[2] for result in metadata}):
        overlaps = [
            result
            for result in metadata
            if result[2] == name and result[1][0] < wanted_end and wanted_begin < result[1][1]
        ]
        if not overlaps:
            continue
        with create_stream(fs, os.path.join(url, name), "rb") as stream:
            assert stream.readable() and stream.seekable()
            for number, (begin, end), _, offset, length in overlaps:
                data = zipfile.ZipFile(View(stream, offset, length)).read("data")
                first, last = max(begin, wanted_begin), min(end, wanted_end)
                part = data[first - begin : last - begin]
                loaded[number][first - wanted_begin : last - wanted_begin] = part
    for number in range(TENSORS):
        assert loaded[number] == tensor(seed, number)[wanted_begin:wanted_end], number
    return fs


def main(verb, url, rank, ranks, seed, *more):
    begun = time.monotonic()
    rank, ranks, seed = int(rank), int(ranks), int(seed)
    if verb == "save":
        fs = save(url, rank, ranks, seed, more[0], "--hang" in more)
    else:
        fs = load(url, rank, ranks, seed)
    seconds = time.monotonic() - begun
    print(json.dumps({"rank": rank, "starts": fs.program.starts, "seconds": seconds}))


if __name__ == "__main__":
    main(*sys.argv[1:])
