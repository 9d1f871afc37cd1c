"""Files in a Strongroom repository for programs that use fsspec: `strongroom://PATH`.

The program `strongroom` does all the work, as a child: this package knows nothing of the format.

What a path is
    A file is a snapshot that holds one file. `strongroom://run-1/step-100/__0_0.distcp` is a
    snapshot with the file `/__0_0.distcp` and these labels:

    - `fsspec`: it is a file of this file system;
    - `strongroom://run-1/step-100/__0_0.distcp`: its path;
    - `strongroom://run-1/step-100/`: its folder, by which a whole checkpoint is found.

    So one run of `strongroom snapshots` lists all files with their sizes and times. If several
    snapshots have the same path, the newest is the file, and the others are its older versions.
    Folders exist while they hold a file; an empty one exists only in the process that made it.
    Snapshots without these labels, such as ordinary backups, are not in this file system.

What a write becomes
    The bytes go to `strongroom backup --stdin` while they are written: there is no copy in a
    temporary folder. The snapshot is made when the file is closed. Before that, or if the writer
    fails, is killed, or leaves a `with` block by an exception, there is no file: the stream has an
    end only if this package says so in a second pipe (`streams.py`).

    Why a snapshot for each file, and not one for each checkpoint: ranks write from processes of
    their own, often on other machines, and only the last write (`.metadata`) says that a
    checkpoint is whole. One snapshot would need a folder that all ranks reach, room for a second
    copy, and a rule for when it is over. Labels need none of it, and renaming is free.

What a rename, a copy, a removal become
    Changes of labels, of a few hundred bytes. `mv` gives a snapshot another path, `cp` a further
    one. `rm` replaces the label `fsspec` by `fsspec-removed`: the file is not seen here any more,
    but nothing is deleted; `strongroom label ID --remove fsspec-removed --add fsspec` brings it
    back. To free space, forget the snapshots (`StrongroomFileSystem.forget`, or `strongroom
    forget`), and prune.

What a transaction becomes
    Files written in `with fs.transaction:` have the label `fsspec-pending:ID` and are not seen.
    At its end one label, `fsspec-committed:ID`, makes all of them visible at once; then both kinds
    of labels are taken away. What a transaction gives up is forgotten.

What is not promised
    Two processes that write the same path at the same time: the later snapshot wins. A process sees
    what another one removed or replaced after at most `listings_expiry_time` seconds (2), and what
    it created at once. If a checkpoint is saved over an older one, there is a time in which files
    of both are mixed, as in a folder: give each checkpoint a folder of its own.
"""

from .filesystem import StrongroomFileSystem
from .program import StrongroomError

__all__ = ["StrongroomError", "StrongroomFileSystem"]
