"""Checkpoints of several ranks, each a process, as PyTorch saves and loads them."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from support import RepositoryCase

STANDIN = str(Path(__file__).with_name("standin.py"))


class Checkpoints(RepositoryCase):
    def start(self, *words, **variables):
        command = [sys.executable, STANDIN, *map(str, words)]
        environment = dict(os.environ, **variables)
        return subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def ended(self, child, code=0):
        out, err = child.communicate(timeout=120)
        self.assertEqual(child.returncode, code, out + err)
        return json.loads(out) if code == 0 else err

    def save(self, url, ranks, seed, **variables):
        folder = tempfile.mkdtemp(dir=self.folder)
        children = [
            self.start("save", url, rank, ranks, seed, folder, **variables) for rank in range(ranks)
        ]
        return [self.ended(child) for child in children]

    def load(self, url, ranks, seed, **variables):
        children = [self.start("load", url, rank, ranks, seed, **variables) for rank in range(ranks)]
        return [self.ended(child) for child in children]

    def test_what_is_saved_is_loaded_by_any_number_of_ranks(self):
        first, second = "strongroom://run-1/step-100", "strongroom://run-1/step-200"
        saved = self.save(first, 3, 1)
        # All look for an older checkpoint and write a file; the first also writes the metadata,
        # looks once more, and renames.
        self.assertEqual([rank["starts"] for rank in saved], [5, 2, 2])
        self.save(second, 2, 2)
        for url, seed in [(first, 1), (second, 2)]:
            for ranks in [1, 2, 3, 5]:
                loaded = self.load(url, ranks, seed)
                # The list, the metadata, and at most the files of all ranks.
                self.assertLessEqual(max(rank["starts"] for rank in loaded), 5)
        names = ["run-1/step-100/" + name for name in [".metadata"] + [f"__{r}_0.distcp" for r in range(3)]]
        self.assertEqual(self.fs.ls("run-1/step-100", detail=False), names)
        self.assertEqual(self.snapshots(), 4 + 3)

    def test_tensors_that_did_not_change_are_stored_once(self):
        def stored():
            files = [path for path in self.repository().rglob("*") if path.is_file()]
            return sum(path.stat().st_size for path in files)

        tensors = 6 * 2_000_000
        size = {"STANDIN_TENSOR_BYTES": "2000000"}
        before = stored()
        self.save("strongroom://run/1", 2, 1, **size)
        first, before = stored() - before, stored()
        self.save("strongroom://run/2", 2, 2, **size)
        second = stored() - before
        self.assertGreater(first, tensors)
        # Half of the tensors are frozen. Chunks at their edges are stored again.
        self.assertLess(second, first * 0.75, (first, second))
        self.load("strongroom://run/1", 1, 1, **size)
        self.load("strongroom://run/2", 1, 2, **size)

    def test_a_large_file_takes_few_starts(self):
        url, size = "strongroom://run/1", {"STANDIN_TENSOR_BYTES": "8000000"}
        self.save(url, 1, 1, **size)
        # The list, the metadata, the end of each of six tensors, and a stream for the rest.
        self.assertLessEqual(self.load(url, 1, 1, **size)[0]["starts"], 9)

    def test_a_checkpoint_is_saved_again(self):
        url = "strongroom://run/latest"
        self.save(url, 2, 1)
        self.save(url, 2, 2)
        self.load(url, 3, 2)
        self.assertEqual(len(self.fs.ls("run/latest")), 3)

    def test_a_rank_that_is_killed_leaves_no_checkpoint(self):
        old, new = "strongroom://run/1", "strongroom://run/2"
        self.save(old, 2, 1)
        folder = tempfile.mkdtemp(dir=self.folder)
        wait = {"STANDIN_WAIT_SECONDS": "3"}
        others = [self.start("save", new, rank, 3, 2, folder, **wait) for rank in (0, 2)]
        killed = self.start("save", new, 1, 3, 2, folder, "--hang")
        while not Path(folder, "hangs").exists():
            self.assertIsNone(killed.poll())
            time.sleep(0.01)
        killed.kill()
        killed.communicate()
        self.assertIn("rank 1 is gone", self.ended(others[0], 1))
        self.ended(others[1])
        # What is whole is there; that it is no checkpoint is seen by what is not.
        self.assertEqual(self.fs.ls("run/2", detail=False), ["run/2/__0_0.distcp", "run/2/__2_0.distcp"])
        self.assertIn("FileNotFoundError", self.ended(self.start("load", new, 0, 1, 2), 1))
        self.load(old, 1, 1)
        self.save(new, 3, 2)
        self.load(new, 2, 2)

    def test_a_full_repository_leaves_no_checkpoint(self):
        room = os.environ.get("STRONGROOM_TEST_SMALL_FOLDER")
        if room is None:
            self.skipTest("STRONGROOM_TEST_SMALL_FOLDER is not set; crates/cli/tests/it/doors.rs sets it")
        os.environ["STRONGROOM_REPOSITORY"] = f"{room}/repository"
        self.strongroom("init", "--kdf-memory", "32KiB")
        old, new = "strongroom://run/1", "strongroom://run/2"
        self.save(old, 1, 1)
        folder = tempfile.mkdtemp(dir=self.folder)
        large = {"STANDIN_TENSOR_BYTES": "20000000"}
        self.assertIn("space", self.ended(self.start("save", new, 0, 1, 2, folder, **large), 1))
        self.assertEqual(self.new_fs().ls("run", detail=False), ["run/1"])
        self.load(old, 2, 1)
        self.fs.forget("run/1")
