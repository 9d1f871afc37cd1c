"""Runs a machine that boots from its own disk, with what its keeper needs to archive it while it runs:

    with Machine("vm1") as machine:
        machine.check("apt-get …")
        backup(machine.sockets / "qmp", machine.sockets / "agent")
        machine.monitor.execute("query-block")

Its disk is called `vda`, for QEMU's monitor too. It is a copy of `machine_image.py`'s, or another
file: then what is written to it is lost."""
import json, os, pathlib, shutil, socket, subprocess, tempfile, time

from .guest import ACCELERATOR, Guest, GuestError, is_running
from .machine_image import machine_disk

QMP_SECONDS = 60
LOGIN = " login: "


class Machine(Guest):
    # More would wait for each other. One with newer instructions is slower to emulate.
    processors = 1
    processor = "Nehalem"

    def __init__(self, name="vm1", memory="512M", disk=None):
        self.name = name
        self.given = disk
        super().__init__(memory)
        # The path of a socket must be short, so it is not in the folder.
        for old in pathlib.Path(tempfile.gettempdir()).glob("vm-*-*"):
            if not is_running(old.name.split("-")[1]):
                shutil.rmtree(old, ignore_errors=True)
        self.sockets = pathlib.Path(tempfile.mkdtemp(prefix=f"vm-{os.getpid()}-"))

    def __exit__(self, kind, *rest):
        super().__exit__(kind, *rest)
        shutil.rmtree(self.sockets)

    def find_image(self):
        self.image = self.given or machine_disk(self.name)

    def make_disk(self):
        self.disk = self.folder / "disk.qcow2"
        if self.given:
            subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b",
                            os.path.abspath(self.given), self.disk], check=True, timeout=60)
        else:
            subprocess.run(["cp", "--sparse=always", self.image, self.disk], check=True)

    def acceleration(self):
        """Its clock counts what it does, not how long this machine takes for it: on a busy one a
        kernel takes devices that answer late for broken ones. While it waits, time is real."""
        if "tcg" in ACCELERATOR:
            return ["-accel", "tcg", "-icount", "shift=1"]
        return super().acceleration()

    def devices(self):
        return ["-name", self.name,
                "-blockdev", f"driver=qcow2,node-name=disk,discard=unmap,file.driver=file,"
                             f"file.discard=unmap,file.filename={self.disk}",
                "-device", "virtio-blk-pci,drive=disk,id=vda,serial=machine-disk,bootindex=1",
                "-vga", "std",
                # The second is for the test: a monitor has one client at a time.
                *(word for what in ["qmp", "watch"]
                  for word in ["-qmp", f"unix:{self.sockets / what},server=on,wait=off"]),
                "-chardev", f"socket,id=agent,path={self.sockets / 'agent'},server=on,wait=off",
                "-device", "virtio-serial-pci,id=agent-bus",
                "-device", "virtserialport,bus=agent-bus.0,chardev=agent,"
                           "name=org.qemu.guest_agent.0"]

    def start(self, clock=None):
        super().start(clock)
        self.monitor = Monitor(self.sockets / "watch")

    def check_json(self, command, seconds=120):
        """What a command printed that must succeed, read as JSON."""
        return json.loads(self.check(command, seconds))

    def disk_bytes(self):
        [disk] = [block for block in self.monitor.execute("query-block")
                  if block.get("qdev") == "/machine/peripheral/vda/virtio-backend"]
        return disk["inserted"]["image"]["virtual-size"]

    def console(self):
        return (self.folder / "console.log").read_text(errors="replace")

    def await_login(self, seconds=120):
        """Waits for the prompt on the serial console."""
        end = time.monotonic() + seconds
        while self.name + LOGIN not in self.console():
            if time.monotonic() > end:
                raise GuestError(f"no login prompt of {self.name}: {self.console()[-500:]}")
            time.sleep(0.2)

    def screenshot(self, target):
        """Keeps what the screen shows as a PNG."""
        self.monitor.execute("screendump", filename=os.path.abspath(target), format="png")

    def bitmaps(self):
        """The dirty bitmaps of its disk, as QEMU lists them; filters have some without a name."""
        [node] = [node for node in self.monitor.execute("query-named-block-nodes", flat=True)
                  if node.get("node-name") == "disk"]
        return [bitmap for bitmap in node.get("dirty-bitmaps", []) if "name" in bitmap]

    def exports(self):
        return self.monitor.execute("query-block-exports")

    def left_in_it(self):
        """What is in QEMU besides what it began with, except bitmaps."""
        nodes = [node["node-name"] for node in
                 self.monitor.execute("query-named-block-nodes", flat=True)
                 if not node["node-name"].startswith("#") and node["node-name"] != "disk"]
        return nodes + [export["id"] for export in self.exports()]

    def raw(self, target):
        """Copies the disk as it is now to a raw image; the machine is paused meanwhile."""
        self.monitor.execute("stop")
        try:
            subprocess.run(["qemu-img", "convert", "-U", "-O", "raw", self.disk, target],
                           check=True, timeout=600)
        finally:
            self.monitor.execute("cont")


class QmpError(Exception):
    pass


class Monitor:
    """A client of QEMU's monitor."""

    def __init__(self, path):
        self.connection = socket.socket(socket.AF_UNIX)
        self.connection.settimeout(QMP_SECONDS)
        self.connection.connect(str(path))
        self.lines = self.connection.makefile("r", encoding="utf-8")
        self.lines.readline()
        self.execute("qmp_capabilities")

    def execute(self, command, **arguments):
        request = {"execute": command, "arguments": arguments}
        self.connection.sendall(json.dumps(request).encode() + b"\n")
        while line := self.lines.readline():
            answer = json.loads(line)
            if "error" in answer:
                raise QmpError(f"{command}: {answer['error']['desc']}")
            if "return" in answer:
                return answer["return"]
        raise QmpError(f"{command}: QEMU has ended")
