"""Streams into the program and out of it: a file that is written, a file that is read."""

import fcntl
import os
import subprocess
import tempfile
import weakref

from .program import StrongroomError, failure, log_problems, read_events

#: Linux allows users to have pipes of this size.
PIPE_BYTES = 1 << 20
#: Small writes are gathered up to this size.
GATHERED_BYTES = 1 << 18
#: What is in the second pipe if the stream in the first one is whole.
WHOLE = b"whole"
#: How long a child that was given up may take to end.
ENDING_SECONDS = 60


def read_all(program, words, take):
    """Passes what the program writes to `take`, piece by piece."""
    download = Download(program, words)
    try:
        while piece := download.read_some():
            take(piece)
    finally:
        download.close()


class Download:
    """What the program writes, as it is asked for. The program waits meanwhile."""

    def __init__(self, program, words, position=0):
        #: Where in the file the next byte is.
        self.position = position
        self._command = words[0]
        self._owner = os.getpid()
        self._err = tempfile.TemporaryFile()
        streams = {"stdout": subprocess.PIPE, "stderr": self._err}
        try:
            self._child = program.start(words, stdin=subprocess.DEVNULL, **streams)
        except BaseException:
            self._err.close()
            raise
        enlarge(self._child.stdout)

    def is_ours(self):
        """False in a process that was forked off, which would take bytes away from its parent."""
        return os.getpid() == self._owner

    def read(self, size):
        """This many bytes."""
        data = self._child.stdout.read(size)
        self.position += len(data)
        if len(data) < size:
            self._end()
            raise StrongroomError(f"the file ended at byte {self.position}, too early")
        return data

    def read_some(self):
        """Some bytes; none at the end."""
        data = self._child.stdout.read(PIPE_BYTES)
        self.position += len(data)
        if not data:
            self._end()
        return data

    def close(self):
        """Ends the program, if it has not ended."""
        self._child.stdout.close()
        if self.is_ours() and self._child.poll() is None:
            self._child.kill()
            self._child.wait()
        self._err.close()

    def _end(self):
        code = self._child.wait()
        if code != 0:
            raise failure(self._command, code, read_events(self._err), self._err)


class Upload:
    """A stream that becomes a snapshot of one file, if it is finished.

    The end of a pipe does not say whether its writer had finished or was killed. So the program
    reads the stream from a command (`--stdin-from-command`) that fails unless a second pipe says
    that the stream is whole; and a command that fails makes no snapshot.
    """

    def __init__(self, program, name, labels):
        self.bytes = 0
        self._gathered = bytearray()
        self._owner = os.getpid()
        data, self._data = os.pipe()
        sign, self._sign = os.pipe()
        OPEN_UPLOADS.add(self)
        enlarge(self._data)
        self._out, self._err = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        command = f'cat </dev/fd/{data} && test "$(cat </dev/fd/{sign})" = {WHOLE.decode()}'
        words = ["backup", f"--stdin={name}", "--stdin-from-command", command]
        words += [f"--label={label}" for label in labels]
        try:
            self._child = program.start(
                words,
                stdin=subprocess.DEVNULL,
                stdout=self._out,
                stderr=self._err,
                pass_fds=(data, sign),
            )
        except BaseException:
            self._close()
            raise
        finally:
            os.close(data)
            os.close(sign)

    def write(self, data):
        """Takes bytes, all of them."""
        view = memoryview(data)
        if view.nbytes == 0:
            return 0
        view = view.cast("B")
        if len(self._gathered) + len(view) < GATHERED_BYTES:
            self._gathered += view
        else:
            self._send(self._gathered)
            self._gathered = bytearray()
            self._send(view)
        self.bytes += len(view)
        return len(view)

    def finish(self):
        """Makes the snapshot, and returns its id."""
        self._send(self._gathered)
        try:
            os.write(self._sign, WHOLE)
        except BrokenPipeError:
            pass  # The program has ended, and says why.
        summary = self._end()
        if summary["bytes"] != self.bytes or not summary["committed"] or summary["partial"]:
            message = f"{summary['bytes']} bytes of {self.bytes} were stored"
            raise StrongroomError(message, "write the file again")
        return summary["snapshot"]

    def abandon(self):
        """Makes no snapshot. In a process that was forked off, it only lets go of the pipes."""
        if self._data is None:
            return
        self.close_pipes()
        if os.getpid() == self._owner:
            try:
                self._child.wait(ENDING_SECONDS)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait()
        self._close()

    def _send(self, data):
        if self._data is None:
            raise StrongroomError("the program ended before the stream did")
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(self._data, view) :]
        except BrokenPipeError:
            self._end()
            raise StrongroomError("the program ended before the stream did") from None

    def _end(self):
        """Waits for the program, and returns what it stored."""
        self.close_pipes()
        code = self._child.wait()
        events = read_events(self._out)
        summaries = [event for event in events if event["event"] == "summary"]
        try:
            # A stream without a byte is stored, and doubted: here it is meant so.
            doubted = code == 3 and self.bytes == 0
            if not (code == 0 or doubted) or not summaries:
                raise failure("backup", code, events, self._err)
        finally:
            self._close()
        log_problems(events)
        return summaries[0]

    def close_pipes(self):
        """Lets go of the stream, whether it is whole or not."""
        for end in (self._data, self._sign):
            if end is not None:
                os.close(end)
        self._data = self._sign = None

    def _close(self):
        self.close_pipes()
        self._out.close()
        self._err.close()


#: Those whose pipes a process that is forked off would inherit.
OPEN_UPLOADS = weakref.WeakSet()


def let_go():
    """A pipe has no end as long as any process could write into it, such as a worker that loads
    data and was forked off while a file was written."""
    for upload in list(OPEN_UPLOADS):
        upload.close_pipes()


os.register_at_fork(after_in_child=let_go)


def enlarge(pipe):
    """Makes a pipe larger, if this user does not have too many large ones."""
    try:
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    except OSError:
        pass
