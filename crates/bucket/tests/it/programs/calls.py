"""Every call of the module, for tests/it/foreign.rs."""

import array
import mmap
import os
import sys

from strongroom_bucket import Bucket, BucketError


def refused(call, *arguments):
    try:
        call(*arguments)
    except BucketError as error:
        return error
    raise AssertionError("it was not refused")


counts = {"quiesced": 0, "resumed": 0, "evicted": 0, "loaded": 0}


def count(what):
    counts[what] += 1


def quiesce():
    count("quiesced")
    assert refused(bucket.store, "n", 99).code == -9
    # Those that the library has stay as they are.
    kept = bucket._callbacks
    assert refused(bucket.on_quiesce, quiesce, quiesce).code == -9
    assert bucket._callbacks is kept
    if counts["quiesced"] == 2:
        raise RuntimeError("busy")


error = refused(Bucket, "orders", 3, "/nowhere/ram.sock")
assert error.code == -2 and "no agent listens" in str(error)

heap = bytearray(b"\x01" * 50_000)
numbers = array.array("d", [1.5] * 1000)
mapped = mmap.mmap(-1, 20_000)
fd = os.memfd_create("data")
os.write(fd, b"\x02" * 30_000)

with Bucket("orders", 3) as bucket:
    bucket.region("heap", heap)
    bucket.region("numbers", numbers)
    bucket.region("mapped", mapped)
    bucket.region("data", fd, 30_000)
    bucket.region("more", bytearray(10))
    bucket.forget("more")
    bucket.range(b"a", b"m", 1)
    assert bucket.test("n") is None
    bucket.store("n", 7)
    bucket.wait("n", 7)
    assert bucket.test("n") == 7
    heap[:] = b"\x00" * len(heap)
    numbers[999] = 2.5
    mapped[0:4] = b"abcd"
    os.pwrite(fd, b"abcd", 100)
    try:
        heap.append(1)
        raise AssertionError("a registered buffer must not move")
    except BufferError:
        pass
    bucket.load("n", 7)
    assert heap == b"\x01" * 50_000 and numbers[999] == 1.5 and mapped[0:4] == bytes(4)
    assert os.pread(fd, 4, 100) == b"\x02" * 4
    assert refused(bucket.load, "n", 8).code == -7
    try:
        bucket.region("text", b"constant")
        raise AssertionError("what cannot be written is no region")
    except ValueError:
        pass

    bucket.on_quiesce(
        quiesce, lambda: count("resumed"), lambda: count("evicted"), lambda: count("loaded")
    )
    print("registered", flush=True)
    sys.stdin.readline()
    assert counts == {"quiesced": 2, "resumed": 1, "evicted": 0, "loaded": 0}, counts
    bucket.evict()
    assert counts["evicted"] == 1
    heap.append(1)

try:
    bucket.test("n")
    raise AssertionError("it is closed")
except ValueError:
    pass
print("done")
