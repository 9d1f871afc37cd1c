"""A repository of machines, and what is compared with it.

    archive = Archive("target/release/strongroom", folder)
    ended = archive.backup(machine)         # ended.code, ended.text, ended.summary, …
    archive.differences("latest", sums)     # empty if the archive has what the guest had"""
import hashlib, json, os, pathlib, stat, subprocess, threading, time

VOLUME = "vda/p1"
RUN_SECONDS = 3600
# As `inside` has them.
FOLDERS = ["/etc", "/home", "/root", "/usr", "/var"]
LEFT_OUT = "/var/tmp/always-written"


class Ended:
    """How a run of the program ended."""

    def __init__(self, code, text, memory, seconds):
        self.code, self.text, self.memory, self.seconds = code, text, memory, seconds

    @property
    def summary(self):
        """The last line that it printed for programs."""
        found = [json.loads(line) for line in self.text.splitlines() if line.startswith("{")]
        [summary] = [event for event in found if event["event"] == "summary"]
        return summary


class Run:
    """The program while it runs. `nice`, because backups leave the processor to the guest."""

    def __init__(self, words):
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            ["nice", "-n", "19", *map(str, words)], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
        self.lines = []
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        self.lines.extend(self.process.stdout)

    def has_ended(self):
        """Without taking how it ended from `end`."""
        return os.waitid(os.P_PID, self.process.pid,
                         os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def end(self, seconds=RUN_SECONDS):
        """Waits for its end."""
        limit = time.monotonic() + seconds
        while not self.has_ended():
            if time.monotonic() > limit:
                self.process.kill()
            time.sleep(0.02)
        _, status, used = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        self.reader.join()
        return Ended(self.process.returncode, "".join(self.lines), used.ru_maxrss << 10,
                     time.monotonic() - self.began)


class Archive:
    def __init__(self, program, folder):
        self.program = os.path.abspath(program)
        self.folder = pathlib.Path(folder)
        self.repository = self.folder / "repository"
        self.store = self.folder / "store"
        self.store.mkdir(parents=True)
        self.check("key", "generate", self.folder / "passphrase")
        self.check("init")

    def words(self, *arguments):
        return [self.program, *arguments, "--repo", self.repository,
                "--password-file", self.folder / "passphrase", "--cache", self.folder / "cache"]

    def run(self, *arguments):
        return Run(self.words(*arguments)).end()

    def check(self, *arguments):
        ended = self.run(*arguments)
        if ended.code != 0:
            raise SystemExit(f"exit {ended.code} of strongroom {' '.join(map(str, arguments))}:\n"
                             f"{ended.text}")
        return ended

    def begin_backup(self, machine, *arguments, store=None):
        """A backup of a machine that runs, begun."""
        return Run(self.words(
            "machine", "backup", machine.sockets / "qmp", "--name", machine.name,
            "--agent", machine.sockets / "agent", "--store", store or self.store,
            "--store-reserve", "0", "--json", *arguments))

    def undo(self, machine):
        return self.run("machine", "undo", machine.sockets / "qmp",
                        "--agent", machine.sockets / "agent")

    def bytes(self):
        """What it takes on its disk."""
        return sum(path.stat().st_size for path in self.repository.rglob("*") if path.is_file())

    def snapshots(self):
        lines = self.check("snapshots", "--json").text.splitlines()
        return [event["id"] for event in map(json.loads, lines) if event["event"] == "snapshot"]

    def differences(self, snapshot, machine, sums, changed=frozenset()):
        """What of a guest's files is not so in a snapshot; empty if all is so.

        `sums` are what `inside sums` gave, `changed` the files that may differ because the guest
        wrote them meanwhile."""
        kept = self.files(f"{snapshot}:/{machine}/{VOLUME}")
        found = []
        for path, wanted in sums.items():
            if path not in changed and kept.get(path) != wanted:
                found.append(f"{path}: {kept.get(path)}, not {wanted}")
        found += [f"{path}: was not there" for path in kept
                  if path not in sums and path not in changed]
        return found

    def files(self, place):
        """Each regular file below the compared folders, as `parse_sums` has it.

        They are restored into a folder that keeps what was restored before: in the order of a
        disk that is quicker than to read them one by one."""
        target = self.folder / "files"
        self.check("restore", place, "--target", target, "--delete", "--numeric-owner")
        kept = {}
        for top in FOLDERS:
            for folder, _, names in os.walk(f"{target}{top}"):
                for name in names:
                    path = f"{folder}/{name}"
                    state = os.lstat(path)
                    inside = path.removeprefix(str(target))
                    if stat.S_ISREG(state.st_mode) and inside != LEFT_OUT:
                        with open(path, "rb") as file:
                            digest = hashlib.file_digest(file, "sha256").hexdigest()
                        kept[inside] = (digest, state.st_size, stat.S_IMODE(state.st_mode),
                                        state.st_uid, state.st_gid, int(state.st_mtime))
        return kept


def parse_sums(text):
    """What `inside sums` and `inside states` print: facts by path, and times of change by path."""
    lines = [json.loads(line) for line in text.splitlines()]
    return ({path: tuple(facts) for path, *facts, _ in lines},
            {path: changed for path, *_, changed in lines})
