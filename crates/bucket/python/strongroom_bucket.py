"""Buckets in memory, stored and loaded by the agent of the node (`strongroom ram agent`).

    from strongroom_bucket import Bucket

    weights = bytearray(1 << 20)
    with Bucket("model", 0) as bucket:
        bucket.region("weights", weights)
        if (version := bucket.test("epoch")) is not None:
            bucket.load("epoch", version)
        bucket.store("epoch", 1)   # the memory may change again
        bucket.wait("epoch", 1)    # it is stored

A region is any writable buffer (bytearray, mmap, array, a numpy array), or a file descriptor of shared
memory. The bucket keeps a buffer alive, and locked against a change of its length, until the region is
forgotten or the bucket is closed. Other threads of Python run during each call: they must not change
the regions meanwhile.

The library is found by its name; STRONGROOM_BUCKET_LIBRARY names another file.
"""

import ctypes
import os

__all__ = ["Bucket", "BucketError"]

OK, NONE = 0, 1

_QUIESCE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
_RESUME = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Callbacks(ctypes.Structure):
    _fields_ = [
        ("quiesce", _QUIESCE),
        ("resume", _RESUME),
        ("evict", _QUIESCE),
        ("context", ctypes.c_void_p),
        ("loaded", _QUIESCE),
    ]


class BucketError(Exception):
    """What failed and what to do next; `code` is the number of strongroom-bucket.h."""

    def __init__(self, code, reason):
        super().__init__(reason)
        self.code = code


def _open_library():
    path = os.environ.get("STRONGROOM_BUCKET_LIBRARY", "libstrongroom-bucket.so.0")
    library = ctypes.CDLL(path)
    text, handle, size = ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t
    u32, u64 = ctypes.c_uint32, ctypes.c_uint64
    signatures = {
        "sr_open": [text, text, u32, ctypes.POINTER(handle)],
        "sr_region": [handle, text, ctypes.c_int, ctypes.c_void_p, u64],
        "sr_range": [handle, ctypes.c_char_p, size, ctypes.c_char_p, size, u64],
        "sr_on_quiesce": [handle, ctypes.POINTER(_Callbacks)],
        "sr_store": [handle, text, u64],
        "sr_wait": [handle, text, u64],
        "sr_test": [handle, text, ctypes.POINTER(u64)],
        "sr_load": [handle, text, u64],
        "sr_evict": [handle],
    }
    for name, arguments in signatures.items():
        function = getattr(library, name)
        function.argtypes = arguments
        function.restype = ctypes.c_int
    library.sr_close.argtypes = [handle]
    library.sr_close.restype = None
    library.sr_error.argtypes = []
    library.sr_error.restype = text
    return library


_library = None


def _lib():
    global _library
    if _library is None:
        _library = _open_library()
    return _library


class Bucket:
    """Bucket `number` of `file`. Without a socket, STRONGROOM_RAM_SOCKET or the usual one is used."""

    def __init__(self, file, number, socket=None):
        self._handle = None
        self._buffers = {}
        self._callbacks = None
        handle = ctypes.c_void_p()
        path = None if socket is None else os.fsencode(socket)
        self._check(_lib().sr_open(path, file.encode(), number, ctypes.byref(handle)))
        self._handle = handle

    def region(self, area, memory, length=None, base=None):
        """Registers an area: a writable buffer, or a descriptor of shared memory with its length."""
        if isinstance(memory, int):
            if length is None:
                raise ValueError("a descriptor needs the length of its memory")
            self._call("sr_region", area.encode(), memory, base, length)
            self._buffers.pop(area, None)
            return
        view = memoryview(memory)
        if view.readonly or not view.contiguous:
            raise ValueError("a region is a writable buffer in one piece")
        if length is not None and length != view.nbytes:
            raise ValueError("a buffer is registered whole")
        if view.nbytes == 0:
            raise ValueError("a region has at least one byte")
        buffer = (ctypes.c_char * view.nbytes).from_buffer(memory)
        self._call("sr_region", area.encode(), -1, ctypes.addressof(buffer), view.nbytes)
        self._buffers[area] = buffer

    def forget(self, area):
        """Says that an area is no more."""
        self._call("sr_region", area.encode(), -1, None, 0)
        self._buffers.pop(area, None)

    def range(self, low, high=None, split_version=0):
        """Says which keys the bucket holds: from `low` on, up to but without `high`."""
        high_length = 0 if high is None else len(high)
        self._call("sr_range", low, len(low), high, high_length, split_version)

    def on_quiesce(self, quiesce, resume, evict=None, loaded=None):
        """Registers what the program does when the agent asks, from a thread of the library.

        `quiesce` returns once no change is under way; an exception refuses. It may wait for a thread
        that is in `store`, and not for one in `evict`. `evict` frees what it can; an exception keeps it.
        Without `evict` the memory is never freed.
        """

        def guarded(function):
            def call(_context):
                try:
                    function()
                    return 0
                except BaseException:
                    return 1

            return call

        def evicted():
            evict()
            self._buffers.clear()

        callbacks = _Callbacks(
            _QUIESCE(guarded(quiesce)),
            _RESUME(guarded(resume)),
            _QUIESCE() if evict is None else _QUIESCE(guarded(evicted)),
            None,
            _QUIESCE() if loaded is None else _QUIESCE(guarded(loaded)),
        )
        self._call("sr_on_quiesce", ctypes.byref(callbacks))
        # If it fails, the library has those that were registered before.
        self._callbacks = callbacks

    def store(self, name, version):
        """Stores all areas as a version of `name`. The memory may change again when it returns.

        A copy that is not captured is void if the bucket is closed before: `wait` for it.
        """
        self._call("sr_store", name.encode(), version)

    def wait(self, name, version):
        """Waits until a version is stored and committed, as it was stored last.

        If the agent ended before that was known, it fails until the version is stored again.
        """
        self._call("sr_wait", name.encode(), version)

    def test(self, name):
        """The newest stored version of `name`, or None."""
        version = ctypes.c_uint64()
        found = self._call("sr_test", name.encode(), ctypes.byref(version))
        return None if found == NONE else version.value

    def load(self, name, version):
        """Fills the areas from a version."""
        self._call("sr_load", name.encode(), version)

    def evict(self):
        """Has the bucket stored as the newest version of `evicted`, and then freed."""
        self._call("sr_evict")
        self._buffers.clear()

    def close(self):
        """Closes the bucket. A callback that is under way ends first. What is not captured is void."""
        handle, self._handle = self._handle, None
        if handle is not None:
            _lib().sr_close(handle)
        self._buffers.clear()

    def __enter__(self):
        return self

    def __exit__(self, *_exception):
        self.close()

    def __del__(self):
        self.close()

    def _call(self, name, *arguments):
        if self._handle is None:
            raise ValueError("the bucket is closed")
        return self._check(getattr(_lib(), name)(self._handle, *arguments))

    @staticmethod
    def _check(code):
        if code < 0:
            raise BucketError(code, _lib().sr_error().decode())
        return code
