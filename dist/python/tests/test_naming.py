"""Files that get another path, or none, and files that appear together."""

from support import RepositoryCase


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
