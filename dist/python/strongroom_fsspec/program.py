"""The program `strongroom` as a child: its events, its errors, and streams into and out of it.

It knows nothing of paths and labels. Each call is one start of the program, which opens the
repository and derives its keys; `Program.starts` counts them.
"""

import fcntl
import json
import os
import subprocess
import tempfile
import threading
import weakref

#: Linux allows users to have pipes of this size.
PIPE_BYTES = 1 << 20
#: Small writes are gathered up to this size.
GATHERED_BYTES = 1 << 18
#: What is in the second pipe if the stream in the first one is whole.
WHOLE = b"whole"
#: How long a child that was given up may take to end.
ENDING_SECONDS = 60

VARIABLES = {
    "repository": "STRONGROOM_REPOSITORY",
    "password_file": "STRONGROOM_PASSWORD_FILE",
    "password_command": "STRONGROOM_PASSWORD_COMMAND",
    "cache": "STRONGROOM_CACHE",
}
PASSPHRASES = [
    "STRONGROOM_PASSWORD",
    "STRONGROOM_PASSWORD_FILE",
    "STRONGROOM_PASSWORD_COMMAND",
]


class StrongroomError(RuntimeError):
    """The program failed, or cannot be run.

    It is no OSError: fsspec takes many an OSError for "there is no such file", and a wrong
    passphrase must not look like an empty repository.
    """

    def __init__(self, message, hint=None, exit_code=None):
        super().__init__(message if hint is None else f"{message} ({hint})")
        #: What failed, in the words of the program.
        self.message = message
        #: What to do about it, if the program knows.
        self.hint = hint
        #: The exit code of the program (`strongroom --help` lists them), if it ran.
        self.exit_code = exit_code


class Program:
    """How the program is run."""

    def __init__(self, program="strongroom", **options):
        self.program = program
        self.options = {name: value for name, value in options.items() if value is not None}
        self.starts = 0
        self._lock = threading.Lock()

    def run(self, *words):
        """Runs it to its end, and returns its events."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            child = self.start(words, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
            code = child.wait()
            events = read_events(out)
            # It may have read all it was asked for, and found damage elsewhere.
            if code not in (0, 4) or any(event["event"] == "error" for event in events):
                raise failure(words[0], code, events, err)
            return events

    def read(self, words, take):
        """Runs it, and passes what it writes to `take`, piece by piece."""
        download = Download(self, words)
        try:
            while piece := download.read_some():
                take(piece)
        finally:
            download.close()

    def start(self, words, **streams):
        """Starts it. It is in a session of its own, so that Ctrl-C reaches only this process, which
        then decides what becomes of what was written."""
        with self._lock:
            self.starts += 1
        command = [self.program, *words, "--json"]
        try:
            return subprocess.Popen(
                command, env=self._environment(), start_new_session=True, **streams
            )
        except OSError as error:
            hint = "install it, or give its path as the storage option `program`"
            raise StrongroomError(
                f"cannot run the program {self.program}: {error.strerror}", hint
            ) from error

    def _environment(self):
        """Options are passed as variables: other users can read the arguments of a process."""
        environment = dict(os.environ)
        if "password_file" in self.options or "password_command" in self.options:
            for variable in PASSPHRASES:
                environment.pop(variable, None)
        for option, value in self.options.items():
            environment[VARIABLES[option]] = os.fspath(value)
        return environment


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
            if code != 0 or not summaries:
                raise failure("backup", code, events, self._err)
        finally:
            self._close()
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


def read_events(file):
    """The lines of a file that are events."""
    file.seek(0)
    lines = (line for line in file if line.startswith(b"{"))
    return [json.loads(line) for line in lines]


def failure(command, code, events, err):
    """What went wrong, in the words of the program if it said something."""
    for event in events:
        if event["event"] == "error":
            return StrongroomError(event["message"], event["hint"], event["exit"])
    err.seek(0)
    said = err.read().decode(errors="replace").strip() or f"it ended with {code}"
    return StrongroomError(f"`strongroom {command}` failed: {said}", None, code)
