"""Repositories of ours and of restic, which store the same files."""
import json, os, subprocess, sys

MIB = 1 << 20


def say(text):
    print(f"ram: {text}", flush=True)


def in_mib(sizes):
    return ", ".join(f"{name} {size / MIB:.2f} MiB" for name, size in sizes.items())


class Stored:
    """A repository of ours and one of restic, which store the same files."""

    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        folder.mkdir()
        self.environment = dict(
            os.environ, STRONGROOM_REPOSITORY=str(folder / "ours"), STRONGROOM_CACHE=str(folder / "cache"),
            STRONGROOM_PASSWORD_FILE=str(folder / "key"), RESTIC_PASSWORD="x",
            RESTIC_REPOSITORY=str(folder / "restic"))
        self.ours("key", "generate", folder / "key")
        self.ours("init")
        self.call("restic", "init", "--repository-version", "2")

    def call(self, *words):
        done = subprocess.run([str(word) for word in words], env=self.environment,
                              capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{words[0]} {words[1]} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def ours(self, *words):
        return self.call(self.program, *words)

    def store(self, *words):
        lines = self.ours("--json", "ram", "store", *words).splitlines()
        return next(event for event in map(json.loads, lines) if event["event"] == "summary")

    def restic(self, *paths):
        """Stores with restic; gives how much its repository grew."""
        before = self.restic_bytes()
        # What is written to a mapping changes no time of the file: without --force it is passed over.
        self.call("restic", "backup", "--quiet", "--force", "--cache-dir", self.folder / "restic-cache", *paths)
        return self.restic_bytes() - before

    def restic_bytes(self):
        return sum(path.stat().st_size for path in (self.folder / "restic").rglob("*") if path.is_file())
