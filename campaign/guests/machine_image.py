"""The disk of a machine that boots by itself, as machines of users do: a table of partitions, a boot
loader, ext4 and swap, a login prompt on its serial console and on its screen.

`machine_disk("vm1")` is a qcow2 image, built once and kept. Another name is another machine of the
same distribution: the same packages, written to the disk in another order."""
import pathlib, random, subprocess, uuid

from .image import HERE, Recipe, built, call

PACKAGES = """
    dbus initramfs-tools iproute2 kmod libpam-systemd linux-image-amd64 procps python3
    qemu-guest-agent sqlite3 systemd-sysv udev util-linux-extra
""".split()
# What is installed in the nights, each from files that are in the machine.
NIGHTLY = ["bc tree", "jq", "nano", "less file", "rsync", "zip unzip", "htop", "vim", "lsof strace",
           "bash-completion"]
# First what was downloaded to be installed now is deleted.
FETCH = ('rm -f "$1"/var/cache/apt/archives/*.deb && APT_CONFIG="$MMDEBSTRAP_APT_CONFIG" apt-get '
         "--download-only --yes --no-install-recommends "
         '-o Dir::Cache::archives="$1/var/cache/apt/archives" install ' + " ".join(NIGHTLY))
NOTE = "printf '%s\\n' " + " ".join(f"'{names}'" for names in NIGHTLY) + ' >"$1/srv/nights"'
MIB = 1 << 20
ROOT_BEGIN, ROOT_END, DISK_END = 1 * MIB, 2500 * MIB, 2564 * MIB
BOOT_LOADER = pathlib.Path("/usr/lib/EXTLINUX/mbr.bin")
MENU = """DEFAULT debian
PROMPT 0
LABEL debian
LINUX /vmlinuz
INITRD /initrd.img
APPEND root=UUID={root} ro console=tty0 console=ttyS0 quiet no_timer_check mitigations=off
"""
TABLE = "UUID={root} / ext4 errors=remount-ro 0 1\nUUID={swap} none swap sw 0 0\n"


def machine_disk(name):
    """The path of its image."""
    recipe = Recipe(
        f"machine.{name}", PACKAGES, lambda *places: lay_out(name, *places),
        ["setup-machine", name], ["early"],
        ["files/usr/local/sbin/guest-agent", "files/etc/systemd/system/guest-agent.service"],
        [FETCH, NOTE], [HERE / "machine_image.py"])
    return built(recipe) / "disk.qcow2"


def lay_out(name, out, root, made):
    """Makes the disk: it is partitioned, and all files are copied by the kernel."""
    ids = {"root": uuid.uuid4(), "swap": uuid.uuid4()}
    (root / "etc/fstab").write_text(TABLE.format(**ids))
    (root / "boot/extlinux/extlinux.conf").write_text(MENU.format(**ids))
    disk, mounted = made / "disk.raw", made / "mounted"
    mounted.mkdir()
    call(out, "truncate", f"--size={DISK_END}", disk)
    sectors = [place // 512 for place in (ROOT_BEGIN, ROOT_END, DISK_END)]
    table = (f"label: dos\nstart={sectors[0]}, size={sectors[1] - sectors[0]}, type=83, bootable\n"
             f"start={sectors[1]}, size={sectors[2] - sectors[1]}, type=82\n")
    subprocess.run(["sfdisk", "--quiet", disk], input=table, text=True, check=True)
    call(out, "dd", f"if={BOOT_LOADER}", f"of={disk}", "bs=440", "count=1", "conv=notrunc")
    swap = attach(disk, ROOT_END, DISK_END)
    call(out, "mkswap", "--uuid", ids["swap"], swap)
    call(out, "losetup", "--detach", swap)
    device = attach(disk, ROOT_BEGIN, ROOT_END)
    try:
        # The boot loader cannot read a file system with 64-bit block numbers.
        call(out, "mke2fs", "-q", "-t", "ext4", "-O", "^64bit", "-U", ids["root"], device)
        call(out, "mount", device, mounted)
        try:
            copy(name, root, mounted)
            call(out, "extlinux", "--install", mounted / "boot/extlinux")
        finally:
            call(out, "umount", mounted)
    finally:
        call(out, "losetup", "--detach", device)
    call(out, "qemu-img", "convert", "-O", "qcow2", disk, made / "disk.qcow2")
    disk.unlink()
    mounted.rmdir()


def attach(disk, begin, end):
    made = subprocess.run(["losetup", "--find", "--show", f"--offset={begin}",
                           f"--sizelimit={end - begin}", disk],
                          check=True, capture_output=True, text=True)
    return made.stdout.strip()


def copy(name, source, target):
    """Copies a tree in an order that the machine's name decides, so its files are elsewhere on
    the disk of every machine."""
    paths = sorted(source.rglob("*"))
    random.Random(name).shuffle(paths)
    # A folder comes after what is in it, so that it keeps its time.
    paths.sort(key=lambda path: path.is_dir() and not path.is_symlink())
    names = [str(path.relative_to(source)) for path in paths]
    packing = subprocess.Popen(
        ["tar", "--create", "--xattrs", "--acls", "--numeric-owner", f"--directory={source}",
         "--no-recursion", "--null", "--files-from=-"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    unpacking = subprocess.Popen(
        ["tar", "--extract", "--xattrs", "--xattrs-include=*", "--acls", "--numeric-owner",
         "--preserve-permissions", f"--directory={target}"], stdin=packing.stdout)
    packing.stdout.close()
    packing.stdin.write(b"".join(name.encode() + b"\0" for name in names))
    packing.stdin.close()
    if unpacking.wait() or packing.wait():
        raise SystemExit("guest: the files of the machine could not be copied to its disk")
