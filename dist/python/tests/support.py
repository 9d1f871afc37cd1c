"""What the tests have in common: a repository in a folder of its own, and the file system on it."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(PACKAGE))

import fsspec  # noqa: E402
from strongroom_fsspec import StrongroomFileSystem  # noqa: E402

PROGRAM = os.environ.get("STRONGROOM_TEST_PROGRAM", "strongroom")
#: As `strongroom key generate` makes them: it takes next to nothing to open.
PASSPHRASE = "strongroom-key-" + "5a" * 32 + "4f56ba95"

fsspec.register_implementation("strongroom", StrongroomFileSystem, clobber=True)


class RepositoryCase(unittest.TestCase):
    """A test with an empty repository, which the environment names."""

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        variables = {name: os.environ[name] for name in list(os.environ)}
        self.addCleanup(lambda: (os.environ.clear(), os.environ.update(variables)))
        for name in variables:
            if name.startswith("STRONGROOM_") and not name.startswith("STRONGROOM_TEST_"):
                del os.environ[name]
        os.environ["STRONGROOM_REPOSITORY"] = str(self.repository())
        os.environ["STRONGROOM_CACHE"] = str(self.folder / "cache")
        os.environ["STRONGROOM_PASSWORD"] = PASSPHRASE
        os.environ["HOME"] = str(self.folder)
        os.environ["PATH"] = f"{self.program_folder()}:{os.environ['PATH']}"
        self.strongroom("init", "--kdf-memory", "32KiB")
        self.fs = self.new_fs()

    def repository(self):
        return self.folder / "repository"

    def program_folder(self):
        """A folder with the program under its usual name."""
        folder = self.folder / "bin"
        if not folder.exists():
            folder.mkdir()
            (folder / "strongroom").symlink_to(shutil.which(PROGRAM))
        return folder

    def new_fs(self, **options):
        """The file system as another process sees it."""
        return StrongroomFileSystem(skip_instance_cache=True, **options)

    def strongroom(self, *words, code=0):
        """Runs the program, and returns what it printed."""
        command = [PROGRAM, *words]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout

    def snapshots(self):
        """The lines of all snapshots."""
        return self.strongroom("snapshots", "--json").count('"event":"snapshot"')

    def starts(self, fs, act):
        """How often the program is started meanwhile."""
        before = fs.program.starts
        act()
        return fs.program.starts - before


def noise(seed, size):
    """Bytes that no compression makes smaller; the same for the same seed."""
    import random

    return random.Random(seed).randbytes(size)
