"""Disks of guests: Debian 12 from this machine's own package sources, built once and kept.

`image` is the disk of the guest that `guest.py` runs. A disk is built again if its recipe changes:
this file, or the scripts and folders that are laid into it."""
import fcntl, hashlib, os, pathlib, re, shutil, subprocess, tempfile, time

HERE = pathlib.Path(__file__).resolve().parent
HOUSE = pathlib.Path(os.environ.get("STRONGROOM_TEST_GUEST") or HERE.parents[1] / "target/guest")
SUITE = "bookworm"
PACKAGES = """
    ca-certificates cron curl dbus fuse3 initramfs-tools iproute2 kmod linux-image-amd64 opensmtpd
    libpam-systemd openssl procps python3 systemd-sysv udev util-linux-extra
""".split()
DISK_SIZE = "6G"
BUILD_SECONDS = 1200
# Of the settings of this machine's apt, what decides whether it reaches its sources.
APT_SETTINGS = re.compile(r"Acquire::(https?|Check-|Retries|Languages)", re.IGNORECASE)


class Recipe:
    """How a disk is made.

    `name` begins the name of its folder. `early` and `laid` are below this folder: what is in the
    root before the packages are, and what is laid over it after them; a file is laid where its
    path below `files/` says. `hooks` are more of mmdebstrap's, and `setup` is a script with its
    arguments that runs in the root at the end. `finish(out, root, made)` makes what is kept."""

    def __init__(self, name, packages, finish, setup, early=(), laid=(), hooks=(), code=()):
        self.name, self.packages, self.finish = name, packages, finish
        self.setup, self.early, self.laid, self.hooks = setup, early, laid, hooks
        self.code = [HERE / "image.py", *code]

    def digest(self):
        digest = hashlib.sha256(repr((self.packages, self.setup, self.hooks)).encode())
        laid = [path for name in [*self.early, *self.laid] for path in files_at(HERE / name)]
        for path in [*self.code, HERE / self.setup[0], *laid]:
            mode = path.stat().st_mode & 0o111
            digest.update(f"{path.relative_to(HERE)} {mode:o} ".encode())
            digest.update(path.read_bytes())
        return digest.hexdigest()[:12]

    def words(self):
        """The hooks, as words of mmdebstrap's command line."""
        script, *arguments = self.setup
        yield from (f"--essential-hook=sync-in {HERE / name} /" for name in self.early)
        for name in self.laid:
            if (HERE / name).is_dir():
                yield f"--customize-hook=sync-in {HERE / name} /"
            else:
                target = f"/{pathlib.Path(name).relative_to('files')}"
                yield f"--customize-hook=upload {HERE / name} {target}"
        yield from (f"--customize-hook={hook}" for hook in self.hooks)
        yield f"--customize-hook=upload {HERE / script} /setup"
        yield f'--customize-hook=chroot "$1" sh /setup {" ".join(arguments)}'


def files_at(path):
    return [file for file in sorted(path.rglob("*")) if file.is_file()] if path.is_dir() else [path]


def image():
    """The folder with `disk`, `kernel` and `initrd`; builds it if it is not there."""
    return built(Recipe("image", PACKAGES, keep_with_kernel, ["setup"], ["early"], ["files"]))


def keep_with_kernel(out, root, made):
    for name, pattern in [("kernel", "vmlinuz-*"), ("initrd", "initrd.img-*")]:
        [found] = (root / "boot").glob(pattern)
        shutil.copy(found, made / name)
    call(out, "mke2fs", "-q", "-t", "ext4", "-L", "guest", "-d", root, made / "disk", DISK_SIZE)


def built(recipe):
    """The folder that a recipe makes; it is made if it is not there."""
    folder = HOUSE / f"{recipe.name}-{recipe.digest()}"
    HOUSE.mkdir(parents=True, exist_ok=True)
    with open(HOUSE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            for old in HOUSE.glob(f"{recipe.name}-*"):
                shutil.rmtree(old)
            build(recipe, folder)
    return folder


def build(recipe, folder):
    for command in ["mmdebstrap", "mke2fs", "qemu-img"]:
        if not shutil.which(command):
            raise SystemExit(f"a guest needs {command}: ./test installs it")
    if os.geteuid() != 0:
        raise SystemExit("building the guest's disk makes files of other owners: run this as root")
    began = time.monotonic()
    log = HOUSE / "build.log"
    print(f"guest: building a Debian 12, which takes 1 to 3 minutes ({log})", flush=True)
    with tempfile.TemporaryDirectory(dir=HOUSE, prefix="building-") as work, open(log, "w") as out:
        work = pathlib.Path(work)
        (work / "sources").write_text(sources())
        (work / "settings").write_text(apt_settings())
        root, made = work / "root", work / "made"
        made.mkdir()
        call(out, "mmdebstrap", "--mode=root", "--variant=minbase",
             "--include=" + ",".join(recipe.packages),
             *(f"--dpkgopt=path-exclude=/usr/share/{what}/*" for what in ["doc", "locale", "man"]),
             f"--aptopt={work / 'settings'}", *recipe.words(), SUITE, root, work / "sources")
        recipe.finish(out, root, made)
        made.rename(folder)
    print(f"guest: built in {time.monotonic() - began:.0f} s", flush=True)


def call(out, *command):
    try:
        subprocess.run(list(map(str, command)), check=True, stdin=subprocess.DEVNULL, stdout=out,
                       stderr=subprocess.STDOUT, timeout=BUILD_SECONDS)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as failure:
        out.flush()
        tail = pathlib.Path(out.name).read_text(errors="replace").splitlines()[-30:]
        raise SystemExit("\n".join([*tail, f"guest: {failure}", f"The whole log is {out.name}"]))


def sources():
    """This machine's sources of Debian 12, as apt has them."""
    found = []
    folder = pathlib.Path("/etc/apt")
    for path in [folder / "sources.list", *sorted((folder / "sources.list.d").glob("*"))]:
        if not path.is_file():
            continue
        if path.suffix == ".list":
            found += [as_stanza(line) for line in path.read_text().splitlines()]
        elif path.suffix == ".sources":
            found += path.read_text().split("\n\n")
    found = [stanza.strip() for stanza in found if serves_debian_12(stanza)]
    if not found:
        raise SystemExit(f"a guest needs a source of {SUITE} in /etc/apt: this machine has none")
    return "\n\n".join(found) + "\n"


def as_stanza(line):
    """A line such as `deb [signed-by=KEY] URI SUITE COMPONENT …` in apt's newer form."""
    match = re.match(r"deb\s+(?:\[(.*?)\]\s+)?(\S+)\s+(\S+)\s+(.+)", line)
    if not match:
        return ""
    options, uri, suite, components = match.groups()
    key = re.search(r"signed-by=(\S+)", options or "")
    stanza = f"Types: deb\nURIs: {uri}\nSuites: {suite}\nComponents: {components}\n"
    return stanza + (f"Signed-By: {key[1]}\n" if key else "")


def serves_debian_12(stanza):
    suites = re.search(r"^Suites:(.*)$", stanza, re.MULTILINE)
    is_off = re.search(r"^Enabled:\s*no", stanza, re.MULTILINE)
    return bool(suites) and not is_off and all(
        suite.split("-")[0] == SUITE for suite in suites[1].split())


def apt_settings():
    dump = subprocess.run(["apt-config", "dump"], check=True, capture_output=True, text=True).stdout
    return "".join(f"{line}\n" for line in dump.splitlines() if APT_SETTINGS.match(line))
