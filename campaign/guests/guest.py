"""Runs a guest: start, run commands in it, copy files, set its clock, reboot, cut its power.

    with Guest() as guest:
        guest.put("target/release/strongroom", "/usr/bin/strongroom")
        code, output = guest.run("strongroom version")
        guest.reboot(clock="2030-01-01T03:00:00")

Everything has a deadline. What a guest writes goes to a layer of its own, which is deleted at the
end; if the block ends with an error, the layer and the console's log are kept. Commands reach it
through a virtual serial port (`files/usr/local/sbin/guest-agent`), so it needs no network and has
none: what it connects to is in it."""
import json, os, pathlib, shutil, signal, socket, subprocess, sys, tempfile, time

from .image import HOUSE, image

# KVM is quicker, but not every machine that has /dev/kvm can run a stock kernel with it.
ACCELERATOR = os.environ.get("STRONGROOM_TEST_ACCELERATOR", "tcg,thread=multi")
BOOT_SECONDS = 900
STOP_SECONDS = 60
# What the agent gets beyond a command's own deadline, on a machine with other work.
GRACE_SECONDS = 60
BLOCK = 1 << 16
# The folder in which commands run.
HOME = "/root"
# On a busy machine the kernel would take a late timer for a broken one: no_timer_check.
KERNEL_LINE = ("root=/dev/vda rw console=ttyS0 quiet no_timer_check mitigations=off"
               " systemd.show_status=0")


class GuestError(Exception):
    pass


class Guest:
    emulator = "qemu-system-x86_64"
    processors = 2
    processor = "max"

    def __init__(self, memory="1G", disks=()):
        """`disks`: files on this machine that are /dev/vdb, /dev/vdc, … in the guest."""
        self.memory = memory
        self.disks = disks
        self.find_image()
        forget_old_runs()
        self.folder = HOUSE / f"run-{os.getpid()}-{time.monotonic_ns()}"
        self.process = None

    def __enter__(self):
        self.folder.mkdir()
        try:
            self.make_disk()
            self.start()
        except BaseException as failure:
            self.__exit__(type(failure))
            raise
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            self.stop()
            shutil.rmtree(self.folder)
        else:
            self.cut_power()
            print(f"guest: its disk and console.log are kept in {self.folder}", file=sys.stderr)

    def find_image(self):
        """Builds its image, if there is none."""
        self.image = image()

    def make_disk(self):
        """Makes the disk that what it writes goes to."""
        subprocess.run(
            ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", self.image / "disk",
             self.folder / "layer"], check=True, timeout=60)

    def acceleration(self):
        return ["-accel", ACCELERATOR]

    def devices(self):
        """What QEMU is given besides what all guests have: what it boots, and its disks."""
        drives = [f"file={self.folder / 'layer'},format=qcow2,cache=unsafe",
                  *(f"file={os.path.abspath(disk)},format=raw,cache=unsafe" for disk in self.disks)]
        return ["-kernel", self.image / "kernel", "-initrd", self.image / "initrd",
                "-append", KERNEL_LINE,
                *(word for drive in drives for word in ["-drive", f"if=virtio,{drive}"])]

    def start(self, clock=None):
        """Boots it and waits until the system is up; `clock` is what its clock shows then (UTC)."""
        began = time.monotonic()
        # The path of a socket must be short, so it is not in the folder.
        with tempfile.TemporaryDirectory(prefix="guest-") as meeting, socket.socket(
                socket.AF_UNIX) as listener:
            listener.bind(f"{meeting}/channel")
            listener.listen()
            listener.settimeout(BOOT_SECONDS)
            # The kernel ends the guest if this process is killed.
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", self.emulator,
                 "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
                 "-machine", "pc", *self.acceleration(), "-cpu", self.processor,
                 "-smp", str(self.processors), "-m", self.memory, "-rtc", f"base={clock or 'utc'}",
                 *self.devices(),
                 "-nic", "user,model=virtio-net-pci,restrict=on",
                 "-device", "virtio-rng-pci", "-device", "virtio-serial-pci",
                 "-chardev", f"socket,id=channel,path={meeting}/channel",
                 "-device", "virtserialport,chardev=channel,name=guest",
                 "-chardev", f"file,id=console,path={self.folder / 'console.log'},append=on",
                 "-serial", "chardev:console"],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=open(self.folder / "qemu.log", "ab"))
            self.channel = Channel(self.accept(listener))
        self.channel.receive(BOOT_SECONDS)
        # "degraded" is settled too: the caller sees which service failed.
        code, state = self.run("systemctl is-system-running --wait", BOOT_SECONDS)
        self.boot_seconds = time.monotonic() - began
        if state.strip() != "running":
            _, failed = self.run("systemctl --failed --no-legend --plain; systemctl list-jobs")
            raise GuestError(f"the guest is {state.strip() or code} after its start:\n{failed}")

    def accept(self, listener):
        """QEMU's end of the channel, or an error as soon as QEMU has ended."""
        listener.settimeout(0.5)
        end = time.monotonic() + BOOT_SECONDS
        while time.monotonic() < end:
            try:
                return listener.accept()[0]
            except TimeoutError:
                if self.process.poll() is not None:
                    break
        log = (self.folder / "qemu.log").read_text(errors="replace")
        raise GuestError(f"qemu did not start: {log}")

    def run(self, command, seconds=120, out=None):
        """Runs a command of bash as root in /root: its exit code and what it printed, both streams.

        If it takes longer it is killed, and the code is 124. `out` gets the bytes as they come."""
        self.channel.send({"run": command, "seconds": seconds})
        end = time.monotonic() + seconds + GRACE_SECONDS
        output = b""
        while "exit" not in (answer := self.channel.receive(end - time.monotonic())):
            output += answer["bytes"]
            if out:
                out.write(answer["bytes"])
                out.flush()
        return answer["exit"], output.decode(errors="replace")

    def check(self, command, seconds=120):
        """What a command printed that must succeed."""
        code, output = self.run(command, seconds)
        if code != 0:
            raise GuestError(f"exit {code} of: {command}\n{output}")
        return output

    def put(self, source, target):
        """Copies a file of this machine, with its mode, to an absolute path in the guest."""
        data = pathlib.Path(source).read_bytes()
        self.write(target, data, os.stat(source).st_mode & 0o7777)

    def write(self, target, data, mode=0o644):
        """Writes a file in the guest; its folder is made if it is not there."""
        data = data.encode() if isinstance(data, str) else data
        self.channel.send({"put": str(target), "mode": mode, "size": len(data)}, data)
        self.channel.receive(600)

    def read(self, source):
        """The bytes of a file in the guest."""
        self.channel.send({"get": str(source)})
        return self.channel.receive(600)["bytes"]

    def get(self, source, target):
        """Copies a file out of the guest."""
        pathlib.Path(target).write_bytes(self.read(source))

    def set_clock(self, clock):
        """Sets its clock, and that of its hardware, to a time (UTC) such as 2030-01-01T03:00:00.

        Timers by the calendar notice at once."""
        self.check(f"timedatectl set-time '{clock.replace('T', ' ')}'")

    def reboot(self, clock=None):
        """Shuts it down and boots it again; `clock`: as if it had been off until then (UTC)."""
        if clock is None:
            clock = self.check("date -u +%Y-%m-%dT%H:%M:%S").strip()
        self.shut_down()
        self.start(clock)

    def shut_down(self):
        """Ends it as its power button does."""
        self.channel.send({"run": "systemctl poweroff", "seconds": STOP_SECONDS})
        try:
            self.process.wait(STOP_SECONDS + GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self.cut_power()
            raise GuestError("the guest did not shut down: see console.log") from None
        self.channel.close()

    def cut_power(self):
        """Ends it at once; what it had not synced is lost."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(STOP_SECONDS)

    def stop(self):
        """Ends it at once if it is still running, after its file systems are synced."""
        if self.process.poll() is None:
            self.run("sync", STOP_SECONDS)
        self.cut_power()


class Channel:
    """This machine's end of the channel; the agent describes what goes over it."""

    def __init__(self, connection):
        self.connection = connection
        self.unread = b""

    def send(self, message, data=b""):
        self.connection.settimeout(600)
        self.connection.sendall(json.dumps(message).encode() + b"\n" + data)

    def receive(self, seconds):
        """The next answer, with its "bytes"; an error if it is one, or if none comes in time."""
        end = time.monotonic() + seconds
        while b"\n" not in self.unread:
            self.unread += self.block(end)
        line, self.unread = self.unread.split(b"\n", 1)
        answer = json.loads(line)
        if "error" in answer:
            raise GuestError(answer["error"])
        size = answer.get("size", 0)
        blocks, here = [self.unread], len(self.unread)
        while here < size:
            blocks.append(self.block(end))
            here += len(blocks[-1])
        data = b"".join(blocks)
        answer["bytes"], self.unread = data[:size], data[size:]
        return answer

    def block(self, end):
        self.connection.settimeout(max(0.01, end - time.monotonic()))
        try:
            block = self.connection.recv(BLOCK)
        except TimeoutError:
            raise GuestError("the guest does not answer: see console.log") from None
        if not block:
            raise GuestError("the guest has ended: see console.log")
        return block

    def close(self):
        self.connection.close()


def forget_old_runs():
    """Deletes what failed runs left, of processes that have ended."""
    for folder in HOUSE.glob("run-*"):
        if not is_running(folder.name.split("-")[1]):
            shutil.rmtree(folder, ignore_errors=True)


def is_running(process):
    return pathlib.Path("/proc", process).exists()
