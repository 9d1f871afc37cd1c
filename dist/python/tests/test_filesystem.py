"""The file system as any program uses fsspec."""

import array
import datetime
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time

from support import PACKAGE, RepositoryCase, noise

import fsspec
from strongroom_fsspec import StrongroomError


class Reading(RepositoryCase):
    def setUp(self):
        super().setUp()
        self.fs.pipe({"run/a": b"alpha", "run/deep/b": b"beta", "c": b""})

    def test_what_was_written_is_listed(self):
        fs = self.new_fs()
        self.assertEqual(fs.ls("", detail=False), ["c", "run"])
        self.assertEqual(fs.ls("strongroom://run/", detail=False), ["run/a", "run/deep"])
        self.assertEqual([(e["type"], e["size"]) for e in fs.ls("run")], [("file", 5), ("directory", 0)])
        self.assertEqual(fs.find(""), ["c", "run/a", "run/deep/b"])
        self.assertEqual(fs.glob("run/**/b"), ["run/deep/b"])
        self.assertEqual(fs.glob("strongroom://run/*"), ["run/a", "run/deep"])
        self.assertEqual(fs.du("run"), 9)
        self.assertTrue(fs.isdir("run/deep") and fs.isfile("c") and not fs.exists("run/b"))
        self.assertRaises(FileNotFoundError, fs.ls, "nothing")
        self.assertRaises(FileNotFoundError, fs.info, "run/nothing")
        age = datetime.datetime.now(datetime.timezone.utc) - fs.modified("c")
        self.assertLess(abs(age), datetime.timedelta(minutes=5))
        self.assertLessEqual(fs.created("c"), fs.modified("c"))

    def test_ranges_are_read(self):
        fs = self.new_fs()
        self.assertEqual(fs.cat_file("run/a"), b"alpha")
        for start, end in [(0, 2), (1, 3), (2, None), (-2, None), (0, -1), (3, 3), (9, 12), (4, 99)]:
            self.assertEqual(fs.cat_file("run/a", start, end), b"alpha"[start:end], (start, end))
        self.assertEqual(fs.cat(["run/a", "c"]), {"run/a": b"alpha", "c": b""})
        self.assertEqual(fs.cat_ranges(["run/a"] * 2, [0, 3], [1, 5]), [b"a", b"ha"])
        self.assertEqual(fs.head("run/a", 2) + fs.tail("run/a", 2), b"alha")
        with fs.open("run/a") as file:
            self.assertEqual((file.seek(-3, 2), file.read(2), file.tell()), (2, b"ph", 4))
        with fs.open("run/a", "rt") as file:
            self.assertEqual(file.read(), "alpha")
        self.assertRaises(IsADirectoryError, fs.open, "run", "rb")
        self.assertRaises(FileNotFoundError, fs.open, "run/nothing", "rb")

    def test_other_snapshots_are_not_seen(self):
        (self.folder / "file").write_bytes(b"x")
        self.strongroom("backup", str(self.folder / "file"))
        self.assertEqual(self.new_fs().find(""), ["c", "run/a", "run/deep/b"])

    def test_a_large_file_is_read_by_few_starts(self):
        content = noise(1, 70 << 20)
        self.fs.pipe_file("large", content)
        fs = self.new_fs()

        def read_all():
            with fs.open("large") as file:
                for begin in range(0, len(content), 100_000):
                    self.assertEqual(file.read(100_000), content[begin : begin + 100_000])

        # The list, and one stream.
        self.assertEqual(self.starts(fs, read_all), 2)

        def read_some():
            with fs.open("large") as file:
                for begin in [60 << 20, 61 << 20, 1000, 10 << 20, (70 << 20) - 5]:
                    file.seek(begin)
                    self.assertEqual(file.read(1000), content[begin : begin + 1000])

        # Three ranges; a stream for what follows the first, which goes on to the last.
        self.assertLessEqual(self.starts(fs, read_some), 5)

        def get():
            fs.get("large", str(self.folder / "got"))

        self.assertLessEqual(self.starts(fs, get), 3)
        self.assertTrue((self.folder / "got").read_bytes() == content)


class Writing(RepositoryCase):
    def test_a_file_exists_once_it_is_closed(self):
        other = self.new_fs()
        file = self.fs.open("x/y", "wb")
        self.assertEqual((file.write(b"one"), file.write(bytearray(300_000)), file.tell()), (3, 300_000, 300_003))
        self.assertFalse(other.exists("x/y"))
        file.close()
        self.assertTrue(other.exists("x/y"))
        self.assertEqual(other.cat_file("x/y"), b"one" + bytes(300_000))
        self.assertRaises(ValueError, file.write, b"more")
        file.close()
        self.assertEqual(self.snapshots(), 1)
        with self.fs.open("views", "wb") as file:
            for view in [array.array("d", [1.5, 2.5]), memoryview(b""), array.array("d")]:
                self.assertEqual(file.write(view), memoryview(view).nbytes)
        self.assertEqual(self.fs.size("views"), 16)

    def test_what_is_given_up_is_no_file(self):
        def fails():
            with self.fs.open("f", "wb") as file:
                file.write(noise(2, 3 << 20))
                raise KeyError

        def fails_as_text():
            with self.fs.open("f", "w") as file:
                file.write("half")
                raise KeyError

        self.assertRaises(KeyError, fails)
        self.assertRaises(KeyError, fails_as_text)
        file = self.fs.open("f", "wb")
        file.write(b"x")
        del file
        self.fs.pipe_file("f", b"old")
        with self.fs.open("f", "wb") as file:
            file.write(b"new")
            self.fs.rm("f")
        self.assertEqual(self.new_fs().cat_file("f"), b"old")
        self.assertEqual(self.snapshots(), 1)

    def test_the_newest_version_is_the_file(self):
        for content in [b"1", b"22", b"333"]:
            with self.fs.open("f", "wb") as file:
                file.write(content)
        reader = self.fs.open("f")
        self.fs.pipe_file("f", b"4")
        self.assertEqual((reader.read(), self.fs.cat_file("f")), (b"333", b"4"))
        self.assertEqual(self.fs.find(""), ["f"])
        self.assertRaises(FileExistsError, self.fs.pipe_file, "f", b"5", mode="create")
        self.assertRaises(FileExistsError, self.fs.open, "f", "xb")
        self.assertRaises(NotImplementedError, self.fs.open, "f", "ab")

    def test_text_is_stored(self):
        with self.fs.open("t", "w", encoding="latin-1") as file:
            file.write("größe\n")
        with self.fs.open("t", "r", encoding="latin-1") as file:
            self.assertEqual(file.read(), "größe\n")
        with fsspec.open("strongroom://z.gz", "wt", compression="infer") as file:
            file.write("packed")
        with fsspec.open("strongroom://z.gz", "rt", compression="infer") as file:
            self.assertEqual(file.read(), "packed")

    def test_strange_names(self):
        for name in ["a b", "größe", "-x", "--json", "a:b@latest", "50%", "'\"$(id)", "a\nb", "x" * 200]:
            self.fs.pipe_file(f"d/{name}", name.encode())
        fs = self.new_fs()
        for path in fs.find("d"):
            self.assertEqual(fs.cat_file(path), path[2:].encode())
        self.assertEqual(len(fs.ls("d")), 9)
        for path in ["", "a//b", "a/../b", "."]:
            self.assertRaises(ValueError, self.fs.open, path, "wb")

    def test_trees_come_and_go(self):
        source = self.folder / "source"
        (source / "sub").mkdir(parents=True)
        (source / "one").write_bytes(b"1")
        (source / "sub/two").write_bytes(b"2")
        self.fs.put(str(source), "tree", recursive=True)
        self.assertEqual(self.fs.find("tree"), ["tree/one", "tree/sub/two"])
        self.fs.get("tree", str(self.folder / "back"), recursive=True)
        self.assertEqual((self.folder / "back/sub/two").read_bytes(), b"2")

    def test_threads_write_at_the_same_time(self):
        contents = {f"t/{n}": noise(n, 500_000) for n in range(6)}
        threads = [threading.Thread(target=self.fs.pipe_file, args=item) for item in contents.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(self.new_fs().cat("t/*"), contents)

    def test_a_process_that_is_forked_off_delays_nothing(self):
        file = self.fs.open("f", "wb")
        file.write(b"x")
        child = os.fork()
        if child == 0:
            try:
                time.sleep(60)
            finally:
                os._exit(0)
        begun = time.monotonic()
        file.close()
        self.assertLess(time.monotonic() - begun, 30)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        self.assertEqual(self.new_fs().cat_file("f"), b"x")

    def test_it_goes_to_other_processes(self):
        self.fs.pipe_file("f", b"x")
        self.assertEqual(pickle.loads(pickle.dumps(self.fs)).cat_file("f"), b"x")

    def test_folders_of_this_process(self):
        self.fs.makedirs("a/b")
        self.assertTrue(self.fs.isdir("a/b") and self.fs.isdir("a"))
        self.assertEqual((self.fs.ls("a/b"), self.fs.ls("a", detail=False)), ([], ["a/b"]))
        self.fs.makedirs("a/b", exist_ok=True)
        self.assertRaises(FileExistsError, self.fs.makedirs, "a/b")
        self.fs.rmdir("a/b")
        self.assertFalse(self.fs.exists("a/b"))
        self.assertFalse(self.new_fs().exists("a"))


class Naming(RepositoryCase):
    def test_a_move_is_a_change_of_labels(self):
        self.fs.pipe({"d/.metadata.tmp": b"new", "d/.metadata": b"old"})
        self.fs.pipe_file("d/.metadata.tmp", b"newest")
        stored = self.snapshots()
        # Its own labels, and those of the older versions at both paths.
        self.assertLessEqual(self.starts(self.fs, lambda: self.fs.rename("d/.metadata.tmp", "strongroom://d/.metadata")), 3)
        fs = self.new_fs()
        self.assertEqual((fs.find("d"), fs.cat_file("d/.metadata")), (["d/.metadata"], b"newest"))
        self.assertEqual(self.snapshots(), stored)
        self.assertRaises(FileNotFoundError, self.fs.mv, "d/nothing", "d/x")

    def test_an_older_file_replaces_a_newer_one(self):
        self.fs.pipe_file("older", b"1")
        self.fs.pipe_file("newer", b"2")
        self.fs.mv("older", "newer")
        self.assertEqual((self.fs.find(""), self.fs.cat_file("newer")), (["newer"], b"1"))

    def test_folders_move_and_are_copied(self):
        self.fs.pipe({"a/1": b"1", "a/b/2": b"2"})
        self.fs.mv("a", "z", recursive=True)
        self.assertEqual(self.fs.find(""), ["z/1", "z/b/2"])
        self.fs.cp("z", "copy", recursive=True)
        self.assertEqual(self.snapshots(), 2)
        self.assertEqual(self.fs.find(""), ["copy/1", "copy/b/2", "z/1", "z/b/2"])
        self.fs.rm("z", recursive=True)
        fs = self.new_fs()
        self.assertEqual((fs.find(""), fs.cat_file("copy/b/2")), (["copy/1", "copy/b/2"], b"2"))

    def test_what_is_removed_can_be_brought_back(self):
        self.fs.pipe({"d/1": b"1", "d/2": b"2", "d/3": b"3"})
        self.fs.pipe_file("d/1", b"one")
        self.assertRaises(IsADirectoryError, self.fs.rm, "d")
        self.assertRaises(FileNotFoundError, self.fs.rm, "d/4")
        self.fs.invalidate_cache()
        self.assertEqual(self.starts(self.fs, lambda: self.fs.rm("d", recursive=True)), 2)
        fs = self.new_fs()
        self.assertFalse(fs.exists("d"))
        self.assertEqual(self.snapshots(), 4)
        found = self.strongroom("snapshots", "--json", "--label", "strongroom://d/2")
        snapshot = found.partition('"id":"')[2].partition('"')[0]
        self.strongroom("label", snapshot, "--remove", "fsspec-removed", "--add", "fsspec")
        fs = self.new_fs()
        self.assertEqual((fs.find(""), fs.cat_file("d/2")), (["d/2"], b"2"))

    def test_what_is_forgotten_is_gone(self):
        self.fs.pipe({"d/1": b"1", "d/2": b"2", "dd/3": b"3"})
        self.fs.rm("d/2")
        self.assertEqual(len(self.fs.forget("d")), 2)
        self.assertEqual((self.fs.find(""), self.snapshots()), (["dd/3"], 1))
        self.assertRaises(FileNotFoundError, self.fs.forget, "d")

    def test_what_others_write_is_seen(self):
        other = self.new_fs(listings_expiry_time=3600)
        self.assertFalse(other.exists("d/f"))
        self.fs.pipe_file("d/f", b"1")
        self.assertTrue(other.exists("d/f"))
        self.assertEqual(other.cat_file("d/f"), b"1")


class Transactions(RepositoryCase):
    def test_files_appear_together(self):
        other = self.new_fs(listings_expiry_time=0)
        self.fs.pipe_file("d/1", b"old")
        with self.fs.transaction:
            self.fs.pipe_file("d/1", b"new")
            self.fs.pipe_file("d/2", b"new")
            with self.fs.open("d/3", "wb") as file:
                file.write(b"new")
            self.assertEqual((other.find("d"), other.cat_file("d/1")), (["d/1"], b"old"))
        self.assertEqual(other.find("d"), ["d/1", "d/2", "d/3"])
        self.assertEqual(other.cat_file("d/1"), b"new")
        self.assertNotIn("fsspec-", self.strongroom("snapshots", "--json"))
        with self.fs.transaction:
            self.fs.pipe_file("d/4", b"alone")
        self.assertTrue(other.exists("d/4"))

    def test_one_label_commits_all(self):
        with self.fs.transaction as transaction:
            self.fs.pipe({"d/1": b"1", "d/2": b"2"})
            last = transaction.files[-1].snapshot
            committed = f"fsspec-committed:{transaction.id}"
            self.strongroom("label", last, "--add", committed)
            self.assertEqual(self.new_fs().find("d"), ["d/1", "d/2"])
            self.strongroom("label", last, "--remove", committed)
            self.assertEqual(self.new_fs().find(""), [])

    def test_a_transaction_that_fails_leaves_nothing(self):
        def fails():
            with self.fs.transaction:
                self.fs.pipe_file("d/1", b"1")
                self.fs.open("d/2", "wb").write(b"2")
                raise KeyError

        self.assertRaises(KeyError, fails)
        self.assertEqual((self.new_fs().find(""), self.snapshots()), ([], 0))
        self.fs.pipe_file("d/1", b"after")
        self.assertEqual(self.new_fs().find(""), ["d/1"])


class BadDays(RepositoryCase):
    def test_a_wrong_passphrase_is_said(self):
        self.fs.pipe_file("f", b"x")
        os.environ["STRONGROOM_PASSWORD"] = "wrong"
        fs = self.new_fs()
        for act in [fs.exists, fs.find, fs.glob, fs.isdir, fs.cat_file, lambda path: fs.pipe_file(path, b"y")]:
            with self.assertRaises(StrongroomError) as failed:
                act("f")
            self.assertEqual(failed.exception.exit_code, 5)
        # Options count more than the environment.
        (self.folder / "password").write_text(f"strongroom-key-{'5a' * 32}4f56ba95\n")
        fs = self.new_fs(password_file=self.folder / "password")
        self.assertEqual(fs.cat_file("f"), b"x")
        fs = self.new_fs(password_command=f"cat {self.folder}/password")
        self.assertEqual(fs.cat_file("f"), b"x")

    def test_no_repository_is_said(self):
        fs = self.new_fs(repository=self.folder / "nothing")
        self.assertRaisesRegex(StrongroomError, "strongroom init", fs.exists, "f")
        self.assertRaisesRegex(StrongroomError, "strongroom init", fs.pipe_file, "f", b"x")

    def test_no_program_is_said(self):
        os.environ["PATH"] = "/nowhere"
        self.assertRaisesRegex(StrongroomError, "cannot run the program strongroom", self.fs.exists, "f")
        self.assertRaisesRegex(StrongroomError, "install it", self.fs.pipe_file, "f", b"x")
        program = self.program_folder() / "strongroom"
        self.assertFalse(self.new_fs(program=program).exists("f"))

    def test_a_writer_that_is_killed_leaves_no_file(self):
        script = textwrap.dedent("""
            import sys, time
            from support import StrongroomFileSystem
            file = StrongroomFileSystem().open("d/killed", "wb")
            file.write(bytes(3_000_000))
            print("written", flush=True)
            time.sleep(600)
        """)
        python = [sys.executable, "-c", script]
        environment = dict(os.environ, PYTHONPATH=str(PACKAGE / "tests"))
        child = subprocess.Popen(python, env=environment, stdout=subprocess.PIPE)
        self.assertEqual(child.stdout.readline(), b"written\n")
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        # The program ends by itself, and has stored what the next writer need not store again.
        self.fs.pipe_file("d/next", bytes(3_000_000))
        self.assertEqual(self.new_fs().find(""), ["d/next"])
        self.assertEqual(self.snapshots(), 1)

    def test_a_program_that_dies_is_said(self):
        file = self.fs.open("f", "wb")
        file._upload._child.kill()

        def go_on():
            for _ in range(100):
                file.write(bytes(1 << 20))
            file.close()

        self.assertRaises(StrongroomError, go_on)
        self.assertRaises(StrongroomError, file.close)
        self.assertFalse(self.new_fs().exists("f"))

    def test_fsspec_finds_the_package(self):
        """The entry point, as the installed package has it."""
        import tomllib

        project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
        points = project["entry-points"]["fsspec.specs"].items()
        info = self.folder / f"site/strongroom_fsspec-{project['version']}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
        lines = "".join(f"{name} = {value}\n" for name, value in points)
        (info / "entry_points.txt").write_text("[fsspec.specs]\n" + lines)
        script = "import fsspec; fs, path = fsspec.core.url_to_fs('strongroom://a/b'); print(type(fs).__name__, path)"
        environment = dict(os.environ, PYTHONPATH=f"{PACKAGE}:{self.folder}/site")
        done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
        self.assertEqual(done.stdout, "StrongroomFileSystem a/b\n", done.stderr)
