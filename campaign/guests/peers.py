"""The nights of a machine stored by other programs, and other machines stored beside it.

restic, Borg and (if it is installed) Kopia store the raw image of each night, QEMU's increments the
clusters that changed, as QEMU writes them. Ours has to take at most half of the best of them. What
the increments take when they are packed with zstd as well is printed beside."""
import os, pathlib, shutil, subprocess, tempfile

from .archive import Archive
from .machine_image import MIB, ROOT_BEGIN, ROOT_END, machine_disk

CLUSTER = 64 << 10
# The bars.
PART_OF_BEST_MAX = 0.5
SECOND_MAX = 0.08
AFTER_FILES_MAX = 0.12


class Peers:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder) / "peers"
        self.folder.mkdir()
        self.image, self.before = self.folder / "night.raw", self.folder / "before.raw"
        self.environment = dict(
            os.environ, RESTIC_PASSWORD="x", BORG_PASSPHRASE="x", KOPIA_PASSWORD="x",
            KOPIA_CHECK_FOR_UPDATES="false", HOME=str(self.folder),
            BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK="yes", BORG_RELOCATED_REPO_ACCESS_IS_OK="yes")
        self.increments, self.packed = 0, 0
        self.nights = 0
        self.run("restic", "init", "--repository-version", "2", "--repo", self.folder / "restic")
        self.run("borg", "init", "--encryption=repokey-blake2", self.folder / "borg")
        self.has_kopia = shutil.which("kopia") is not None
        if self.has_kopia:
            self.run("kopia", "repository", "create", "filesystem", "--path", self.folder / "kopia")
            self.run("kopia", "policy", "set", "--global", "--compression=zstd")

    def run(self, *words):
        done = subprocess.run(["nice", "-n", "19", *map(str, words)], env=self.environment,
                              cwd=self.folder, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{words[0]} ended with {done.returncode}:\n{done.stderr}")

    def night(self, machine):
        """Stores the disk as it is now with all of them."""
        self.nights += 1
        machine.raw(self.image)
        self.run("restic", "backup", "--repo", self.folder / "restic", "--cache-dir",
                 self.folder / "cache", "--compression", "auto", self.image)
        self.run("borg", "create", "--compression", "zstd,3",
                 f"{self.folder / 'borg'}::{self.nights}", self.image)
        if self.has_kopia:
            self.run("kopia", "snapshot", "create", "--no-progress", self.image)
        self.increment()
        self.image.rename(self.before)

    def increment(self):
        """What an increment of QEMU takes: a qcow2 of the clusters that changed."""
        changed, written = self.folder / "changed.raw", self.folder / "changed.qcow2"
        before = open(self.before, "rb") if self.before.exists() else None
        with open(self.image, "rb") as now, open(changed, "wb") as target:
            while block := now.read(CLUSTER):
                if block != (before.read(CLUSTER) if before else bytes(len(block))):
                    target.seek(now.tell() - len(block))
                    target.write(block)
            target.truncate(now.tell())
        self.increments += self.converted(changed, written)
        self.packed += self.converted(changed, written, "-c", "-o", "compression_type=zstd")
        changed.unlink()

    def converted(self, raw, qcow2, *options):
        self.run("qemu-img", "convert", "-O", "qcow2", *options, raw, qcow2)
        size = qcow2.stat().st_blocks * 512
        qcow2.unlink()
        return size

    def compare(self, machines):
        sizes = {"restic": size_of(self.folder / "restic"), "Borg": size_of(self.folder / "borg"),
                 "increments of qcow2": self.increments}
        if self.has_kopia:
            sizes["Kopia"] = size_of(self.folder / "kopia")
        ours = machines.stored_in_nights
        packed = {"the same, with zstd": self.packed}
        for name, size in {"Strongroom": ours, **sizes, **packed}.items():
            print(f"{name:>20} {size / MIB:8.1f} MiB over {self.nights} nights", flush=True)
        part = ours / min(sizes.values())
        machines.shown(f"Strongroom takes {100 * part:.0f} % of the best of the others")
        second = second_machine(machines)
        after = after_files(machines, self.folder)
        machines.expect_bar(second <= SECOND_MAX, f"a second machine takes {100 * second:.1f} %")
        machines.expect_bar(after <= AFTER_FILES_MAX,
                            f"an image after its files takes {100 * after:.1f} %")
        machines.expect_bar(part <= PART_OF_BEST_MAX, f"ours takes {100 * part:.0f} % of the best")


def size_of(folder):
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def raw_of(name, folder):
    target = folder / f"{name}.raw"
    subprocess.run(["qemu-img", "convert", "-O", "raw", machine_disk(name), target], check=True)
    return target


def bytes_used(path):
    """The bytes of the pages that are not zero."""
    used = 0
    with open(path, "rb") as file:
        while block := file.read(MIB):
            used += sum(1 for at in range(0, len(block), 4096)
                        if block.count(0, at, at + 4096) < min(4096, len(block) - at)) * 4096
    return used


def second_machine(machines):
    """The part of the first machine's bytes that is new of another of the same distribution."""
    folder = machines.archive.folder
    first, second = raw_of("vm1", folder), raw_of("vm2", folder)
    alone = Archive(machines.program, folder / "alone")
    alone.check("image", "backup", "vm1", f"vda={first}")
    part, words = new_of(alone, "vm2", second, bytes_used(first))
    machines.shown(f"a second machine of the same distribution: {words} of the first one's")
    return part


def after_files(machines, folder):
    """The part of an image that is new to a repository that has its files."""
    image = raw_of("vm1", folder)
    alone = Archive(machines.program, folder / "files")
    place = f"ro,loop,offset={ROOT_BEGIN},sizelimit={ROOT_END - ROOT_BEGIN}"
    with tempfile.TemporaryDirectory() as mounted:
        subprocess.run(["mount", "-o", place, image, mounted], check=True)
        try:
            alone.check("backup", mounted)
        finally:
            subprocess.run(["umount", mounted], check=True)
    part, words = new_of(alone, "vm1", image, bytes_used(image))
    machines.shown(f"an image after its files: {words} of its own")
    return part


def new_of(archive, name, image, whole):
    """The part of `whole` that is new of an image, before it is compressed, and words about it."""
    before = archive.bytes()
    summary = archive.check("image", "backup", name, f"vda={image}", "--json").summary
    new, stored = summary["bytes_new"], archive.bytes() - before
    return new / whole, (f"{new / MIB:.1f} MiB are new and take {stored / MIB:.1f} MiB, "
                         f"{100 * new / whole:.1f} % of the {whole / MIB:.0f} MiB")
