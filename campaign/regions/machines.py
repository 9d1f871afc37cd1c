"""Guests with 256 MiB in a file of shared memory, stopped for the time of a store.

One is a kernel with busybox and nothing else, so what changes is what it was asked to write; the other
is a Debian, which always does something. A QEMU that can (9 and newer) saves them with `mapped-ram`
as well."""
import json, random, shutil, socket, subprocess, time

from guests.guest import ACCELERATOR, Guest
from guests.image import image

from .stored import in_mib, say

MEMORY = "256M"
WRITTEN_BYTES = 2_000_000
IDLE_SECONDS = 8
START_SECONDS = 300
# It writes numbers from the one that it is given.
INIT = f"""#!/bin/sh
/bin/busybox --install -s /bin
mount -t devtmpfs none /dev
exec < /dev/ttyS0 > /dev/ttyS0 2>&1
stty -echo
echo ready
while read number; do
  seq $number 100000000 | head -c {WRITTEN_BYTES} > /written
  echo ready
done
"""


class Monitor:
    """QEMU's monitor."""

    def __init__(self, path):
        stream = socket.socket(socket.AF_UNIX)
        stream.connect(str(path))
        self.stream = stream.makefile("rw")
        self.stream.readline()
        self("qmp_capabilities")

    def __call__(self, command, **arguments):
        self.stream.write(json.dumps({"execute": command, "arguments": arguments}) + "\n")
        self.stream.flush()
        while "return" not in (answer := json.loads(self.stream.readline())):
            assert "error" not in answer, answer
        return answer["return"]

    def mapped_ram(self, file):
        """How many bytes of a disk its state takes with its memory at fixed offsets."""
        capability = {"capability": "mapped-ram", "state": True}
        self("migrate-set-capabilities", capabilities=[capability])
        self("migrate-set-parameters", **{"max-bandwidth": 1 << 40})
        self("migrate", uri=f"file:{file}")
        while (now := self("query-migrate"))["status"] not in ["completed", "failed"]:
            time.sleep(0.05)
        assert now["status"] == "completed", now
        size = file.stat().st_blocks * 512
        file.unlink()
        return size


def memory_words(folder):
    """What makes QEMU share the memory of a guest, and be asked to stop it."""
    return ["-object", f"memory-backend-file,id=ram,size={MEMORY},mem-path={folder / 'ram'},share=on",
            "-machine", "memory-backend=ram", "-qmp", f"unix:{folder / 'monitor'},server=on,wait=off"]


class Debian(Guest):
    def __init__(self, emulator, folder):
        super().__init__(memory=MEMORY)
        self.emulator, self.shared = emulator, folder

    def devices(self):
        return [*super().devices(), *memory_words(self.shared)]

    def work(self, number):
        self.run(f"seq {number} 100000000 | head -c {WRITTEN_BYTES} > written; sync; sleep {IDLE_SECONDS}")


class Busybox:
    def __init__(self, emulator, folder):
        self.emulator, self.shared = emulator, folder

    def __enter__(self):
        root = self.shared / "root"
        for name in ["bin", "dev"]:
            (root / name).mkdir(parents=True)
        shutil.copy(shutil.which("busybox"), root / "bin/busybox")
        (root / "bin/sh").symlink_to("busybox")
        (root / "init").write_text(INIT)
        (root / "init").chmod(0o755)
        names = "\n".join(str(path.relative_to(root)) for path in root.rglob("*")).encode()
        initrd = self.shared / "initrd"
        with open(initrd, "wb") as out:
            subprocess.run(["busybox", "cpio", "-o", "-H", "newc"], cwd=root, input=names, stdout=out,
                           stderr=subprocess.DEVNULL, check=True)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(self.shared / "serial"))
        listener.listen()
        listener.settimeout(START_SECONDS)
        self.process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", self.emulator, "-nodefaults", "-display", "none",
             "-machine", "pc", "-accel", ACCELERATOR, "-cpu", "max", "-m", MEMORY,
             "-kernel", image() / "kernel", "-initrd", initrd,
             "-append", "console=ttyS0 quiet no_timer_check mitigations=off",
             "-serial", f"unix:{self.shared / 'serial'}", *memory_words(self.shared)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        connection = listener.accept()[0]
        connection.settimeout(START_SECONDS)
        self.serial = connection.makefile("rw", newline="\n")
        self.wait()
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def wait(self):
        while (line := self.serial.readline()).strip() != "ready":
            assert line, "the guest has ended"

    def work(self, number):
        self.serial.write(f"{number}\n")
        self.serial.flush()
        self.wait()
        time.sleep(IDLE_SECONDS)


def rounds_of(kind, stored, folder, rounds, qemu):
    """Stores a guest of this kind, each round after it wrote and idled; gives the largest round."""
    folder.mkdir()
    name, chance, worst, sums = kind.__name__, random.Random(17), 0, {}
    with kind(qemu or "qemu-system-x86_64", folder) as guest:
        monitor = Monitor(folder / "monitor")
        for number in range(rounds + 1):
            guest.work(chance.randrange(10_000, 100_000))
            monitor("stop")
            begun = time.monotonic()
            summary = stored.store(folder / "ram")
            paused = time.monotonic() - begun
            took = {"ours": summary["bytes_stored"], "restic": stored.restic(folder / "ram")}
            if qemu:
                took["mapped-ram"] = monitor.mapped_ram(folder / "mapped")
            monitor("cont")
            say(f"{name} {number}: {summary['pages_changed']} of {summary['pages']} pages changed, "
                f"stored in {paused:.2f} s; {in_mib(took)}")
            if number > 0:
                worst = max(worst, took["ours"])
                sums = {name: sums.get(name, 0) + size for name, size in took.items()}
    shutil.rmtree(folder)
    say(f"{name}: {rounds} rounds: {in_mib(sums)}")
    return worst
