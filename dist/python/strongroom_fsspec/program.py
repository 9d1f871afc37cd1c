"""The program `strongroom` as a child: how it is started, its events, its errors.

It knows nothing of paths and labels. Each call is one start of the program, which opens the
repository and derives its keys; `Program.starts` counts them.
"""

import json
import logging
import os
import subprocess
import tempfile
import threading

logger = logging.getLogger("fsspec.strongroom")

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
            log_problems(events)
            return events

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


def read_events(file):
    """The lines of a file that are events."""
    file.seek(0)
    lines = (line for line in file if line.startswith(b"{"))
    return [json.loads(line) for line in lines]


def log_problems(events):
    """What a person should know, although nothing failed."""
    for event in events:
        if event["event"] == "problem" and event["severity"] != "note":
            logger.warning("%s", event["message"])


def failure(command, code, events, err):
    """What went wrong, in the words of the program if it said something."""
    for event in events:
        if event["event"] == "error":
            return StrongroomError(event["message"], event["hint"], event["exit"])
    err.seek(0)
    said = err.read().decode(errors="replace").strip() or f"it ended with {code}"
    return StrongroomError(f"`strongroom {command}` failed: {said}", None, code)
