"""Files that become visible together, or not at all."""

import logging
import uuid

from fsspec.transaction import Transaction

logger = logging.getLogger("fsspec.strongroom")


class StrongroomTransaction(Transaction):
    """The files of one `with fs.transaction:`."""

    def __init__(self, fs, **options):
        super().__init__(fs, **options)
        #: In the labels of its files, until it is committed.
        self.id = uuid.uuid4().hex

    def complete(self, commit=True):
        """Commits all files by one label, or gives all of them up."""
        files, fs = list(self.files), self.fs
        self.files.clear()
        try:
            if commit:
                for file in files:
                    file.close()
                fs.commit([file.snapshot for file in files if file.snapshot is not None])
                files = []
        finally:
            self._give_up(files)
            fs._intrans = False
            fs._transaction = None
            self.fs = None

    @staticmethod
    def _give_up(files):
        for file in files:
            try:
                file.discard()
            except Exception:
                # Its snapshot stays hidden.
                logger.warning("cannot give up %s", file.path, exc_info=True)
