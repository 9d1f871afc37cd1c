"""The file system as any program uses fsspec."""

import array
import datetime
import os
import pickle
import signal
import threading
import time

from support import RepositoryCase, noise

import fsspec


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
