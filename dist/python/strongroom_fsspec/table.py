"""Which files there are: labels of snapshots become paths, and paths labels.

Pure: it neither runs the program nor keeps anything.
"""

from dataclasses import dataclass

#: The snapshot is a file that can be seen.
FILE = "fsspec"
#: It was one, and `rm` hid it.
REMOVED = "fsspec-removed"
#: It is hidden until its transaction is committed; the transaction's id follows.
PENDING = "fsspec-pending:"
#: One snapshot has this when the transaction is committed.
COMMITTED = "fsspec-committed:"
URL = "strongroom://"


def labels_of_paths(paths):
    """The labels that say where a file is: its paths, and their folders."""
    folders = {f"{URL}{path.rpartition('/')[0]}/" for path in paths if "/" in path}
    return {URL + path for path in paths} | folders


@dataclass(frozen=True)
class Stored:
    """A snapshot that is, was, or will be a file."""

    snapshot: str
    #: The path of the only file in it.
    inner: str
    size: int
    started: str
    ended: str
    host: str
    paths: frozenset
    labels: frozenset

    @classmethod
    def of(cls, event):
        """Of an event of `strongroom snapshots`; none if it has nothing to do with fsspec."""
        labels = frozenset(event["labels"])
        if event["partial"] or not labels & {FILE, REMOVED} or len(event["paths"]) != 1:
            return None
        urls = (label for label in labels if label.startswith(URL) and not label.endswith("/"))
        return cls(
            snapshot=event["id"],
            inner=event["paths"][0],
            size=event["bytes"],
            started=event["started"],
            ended=event["ended"],
            host=event["host"],
            paths=frozenset(url[len(URL) :] for url in urls),
            labels=labels,
        )

    def pending(self):
        """The transactions that hide it."""
        return {label[len(PENDING) :] for label in self.labels if label.startswith(PENDING)}


class Table:
    """All files at one moment."""

    def __init__(self, events):
        stored = [Stored.of(event) for event in events if event["event"] == "snapshot"]
        #: Hidden ones too; the oldest first.
        self.stored = [one for one in stored if one is not None]
        committed = {
            label[len(COMMITTED) :]
            for one in self.stored
            for label in one.labels
            if label.startswith(COMMITTED)
        }
        #: For each path all its versions, the oldest first.
        self.versions = {}
        for one in self.stored:
            if FILE in one.labels and one.pending() <= committed:
                for path in one.paths:
                    self.versions.setdefault(path, []).append(one)
        #: For each folder the names in it; "" is the top.
        self.folders = {"": set()}
        for path in self.versions:
            self._add_to_folders(path)

    def _add_to_folders(self, path):
        while path:
            folder, _, name = path.rpartition("/")
            names = self.folders.setdefault(folder, set())
            if name in names:
                return
            names.add(name)
            path = folder

    def file(self, path):
        """The file at a path; none if there is none."""
        versions = self.versions.get(path)
        return versions[-1] if versions else None

    def is_folder(self, path):
        """Whether there is something below a path."""
        return path in self.folders

    def below(self, path):
        """The paths of all files at or below a path."""
        if path in self.versions:
            return [path]
        prefix = path + "/" if path else ""
        return sorted(other for other in self.versions if other.startswith(prefix))


def is_below(path, folder):
    """Whether a path is a folder, or in it."""
    return path == folder or not folder or path.startswith(folder + "/")


def check_path(path):
    """Fails if a path cannot be the name of a file."""
    names = path.split("/")
    if any(name in ("", ".", "..") or "\0" in name for name in names):
        raise ValueError(f"{path!r} is no path of a file: it has an empty name, or one with dots")
