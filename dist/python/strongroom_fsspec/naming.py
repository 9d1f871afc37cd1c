"""What gives a stored file another path, or none: changes of labels, and forgetting.

`Naming` is a part of `StrongroomFileSystem`, whose listing and program it uses.
"""

import os

from .table import FILE, REMOVED, check_path, is_below, labels_of_paths


class Naming:
    """Moving, copying, hiding and forgetting files."""

    def cp_file(self, path1, path2, **options):
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        if self.isdir(path1):
            self.makedirs(path2, exist_ok=True)
        elif path1 != path2:
            self._give_path(path1, path2, keep=True)

    def mv(self, path1, path2, recursive=False, maxdepth=None, **options):
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        if path1 == path2:
            return
        if self.isfile(path1):
            is_folder = self._current_table().is_folder(path2) or path2 in self._made_folders
            target = f"{path2}/{path1.rpartition('/')[2]}" if is_folder else path2
            self._give_path(path1, target, keep=False)
            return
        paths = self._table_with(path1).below(path1)
        if not paths and path1 not in self._made_folders:
            raise FileNotFoundError(path1)
        for path in paths:
            self._give_path(path, path2 + path[len(path1) :], keep=False)
        self._made_folders -= {made for made in self._made_folders if is_below(made, path1)}

    def _give_path(self, path, target, keep):
        check_path(target)
        table = self._table_with(path)
        stored = table.file(path) or self._stored(path)
        replaced, newest = table.versions.get(target, []), table.stored
        if replaced and newest.index(replaced[-1]) > newest.index(stored):
            # It would stay the newest of its path, and so the file.
            self._hide(table, {target})
            replaced = []
        paths = (stored.paths if keep else stored.paths - {path}) | {target}
        before, after = labels_of_paths(stored.paths), labels_of_paths(paths)
        self._label([stored.snapshot], add=after - before, remove=before - after)
        hidden = {target} if replaced else set()
        older = [] if keep else table.versions[path][:-1]
        if hidden or older:
            self._hide(table, hidden, older, path)

    def rm(self, path, recursive=False, maxdepth=None):
        """Hides files. Their snapshots stay, and can be brought back.

        A file that is being written is given up, and an older version of it stays as it is.
        """
        paths = [path] if isinstance(path, (str, os.PathLike)) else path
        paths = [self._strip_protocol(one) for one in paths]
        given_up = [path for path in paths if self._give_up_open(path)]
        paths = [path for path in paths if path not in given_up]
        if not paths:
            return
        found = set(self.expand_path(paths, recursive=recursive, maxdepth=maxdepth))
        folders = {path for path in found if self.info(path)["type"] == "directory"}
        if folders and not recursive:
            raise IsADirectoryError(sorted(folders)[0])
        self._hide(self._current_table(), found - folders)
        self._made_folders -= folders

    def rm_file(self, path):
        self.rm(path)

    def _give_up_open(self, path):
        with self._lock:
            files = list(self._open_files.get(path, []))
        for file in files:
            file.discard()
        return bool(files)

    def _hide(self, table, paths, versions=(), path=None):
        """Hides all versions of some paths, and some versions of one path."""
        gone = {}
        for one in paths:
            for stored in table.versions.get(one, []):
                gone.setdefault(stored, set()).add(one)
        for stored in versions:
            gone.setdefault(stored, set()).add(path)
        whole = [stored.snapshot for stored, paths in gone.items() if paths >= stored.paths]
        if whole:
            self._label(whole, add=[REMOVED], remove=[FILE])
        for stored, paths in gone.items():
            if not paths >= stored.paths:
                left = labels_of_paths(stored.paths - paths)
                self._label([stored.snapshot], remove=labels_of_paths(stored.paths) - left)

    def forget(self, path):
        """Forgets the snapshots of a file, or of all files in a folder, with their older versions
        and those that `rm` hid. The next `strongroom prune` removes what no other snapshot needs.
        Returns their ids."""
        path = self._strip_protocol(path)
        self.invalidate_cache()
        stored = (one for one in self._current_table().stored if not one.pending())
        found = [
            one.snapshot
            for one in stored
            if one.paths and all(is_below(other, path) for other in one.paths)
        ]
        if not found:
            raise FileNotFoundError(path)
        self.program.run("forget", "--yes", *found)
        self.invalidate_cache()
        return found

    def _label(self, snapshots, add=(), remove=()):
        changes = [f"--add={label}" for label in sorted(add)]
        changes += [f"--remove={label}" for label in sorted(remove)]
        try:
            if changes:
                self.program.run("label", *snapshots, *changes)
        finally:
            self.invalidate_cache()
