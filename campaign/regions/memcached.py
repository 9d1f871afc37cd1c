"""memcached, whose items are a file of shared memory (-e): stored stopped, and while it answers.

Beside it runs one without such a file that is given the same items, for CRIU: of a file that is mapped,
CRIU keeps the name."""
import os, pathlib, random, shutil, signal, socket, statistics, subprocess, sys, threading, time

from .stored import in_mib, say

ITEMS = 300_000
VALUE_BYTES = 100
PAGE_BYTES = 16 << 10
LOAD_SECONDS = 6


class Memcached:
    def __init__(self, socket_path, *words):
        self.socket_path = socket_path
        self.socket_path.unlink(missing_ok=True)
        # CRIU dumps neither pipes to others nor a part of a session.
        self.process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "memcached", "-u", "root", "-m", "96", "-s", socket_path, *words],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True)
        while True:
            try:
                self.stream = self.connect()
                return
            except OSError:
                time.sleep(0.05)

    def connect(self):
        stream = socket.socket(socket.AF_UNIX)
        stream.connect(str(self.socket_path))
        return stream.makefile("rwb")

    def set_all(self, items):
        for key, value in items:
            self.stream.write(b"set key%d 0 0 %d noreply\r\n%s\r\n" % (key, len(value), value))
        self.stream.write(b"version\r\n")
        self.stream.flush()
        assert self.stream.readline().startswith(b"VERSION")

    def get(self, key):
        self.stream.write(b"get key%d\r\n" % key)
        self.stream.flush()
        line = self.stream.readline()
        if line == b"END\r\n":
            return None
        value = self.stream.read(int(line.split()[3]) + 2)[:-2]
        self.stream.readline()
        return value

    def stop(self):
        self.process.send_signal(signal.SIGUSR1)
        self.process.wait()
        # It takes its items over only in a later second than that in which it ended.
        time.sleep(1.1)


class Dumped:
    """A memcached of the same items, dumped by CRIU while it runs."""

    def __init__(self, criu, folder):
        self.criu, self.images = criu, folder / "images"
        self.cache = Memcached(folder / "dumped")

    def bytes_after(self, items):
        """What its images take after these items were set; each time they are whole."""
        self.cache.set_all(items)
        # CRIU refuses connections to what it does not dump.
        self.cache.stream.close()
        self.images.mkdir()
        done = subprocess.run(
            [self.criu, "dump", "--tree", str(self.cache.process.pid), "--images-dir", self.images,
             "--leave-running"], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"criu dump ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        size = sum(path.stat().st_size for path in self.images.iterdir())
        shutil.rmtree(self.images)
        self.cache.stream = self.cache.connect()
        return size

    def end(self):
        self.cache.process.kill()
        self.cache.process.wait()


def rounds_of(stored, folder, rounds, criu):
    """Stores it stopped, each round after 1 % of its items were set again, and loads it at the end.

    Gives what then runs, its region, and which part of the region the first such round took."""
    items = folder / "items"
    files = [items, folder / "items.meta"]
    start = lambda: Memcached(folder / "memcached", "-e", items)
    dumped = Dumped(criu, folder) if criu else None
    chance = random.Random(15)
    value = lambda: chance.randbytes(VALUE_BYTES // 2) + b"." * (VALUE_BYTES // 2)
    values = {key: value() for key in range(ITEMS)}
    once, sums = 0, {}
    for number in range(rounds + 1):
        cache = start()
        changed = values if number == 0 else chance.sample(range(ITEMS), ITEMS // 100)
        if number > 0:
            values.update((key, value()) for key in changed)
        changed = [(key, values[key]) for key in changed]
        cache.set_all(changed)
        cache.stop()
        summary = stored.store(*files)
        took = {"ours": summary["bytes_stored"], "restic": stored.restic(*files)}
        if dumped:
            took["CRIU"] = dumped.bytes_after(changed)
        part = took["ours"] / items.stat().st_size
        say(f"memcached {number}: {summary['pages_changed']} of {summary['pages']} pages changed, "
            f"{summary['guarantee']}, {100 * part:.2f} % of the region stored; {in_mib(took)}")
        if number == 1:
            once = part
        if number > 0:
            sums = {name: sums.get(name, 0) + size for name, size in took.items()}
    if dumped:
        dumped.end()
    for path in files:
        path.unlink()
    stored.ours("ram", "load", "latest")
    cache = start()
    found = [cache.get(key) for key in values]
    missing = sum(value is None for value in found)
    wrong = sum(value not in (None, values[key]) for key, value in zip(values, found))
    say(f"memcached: loaded again, {ITEMS - missing} items, {wrong} of them wrong; "
        f"{rounds} rounds: {in_mib(sums)}")
    assert wrong == 0 and missing < ITEMS // 5, "what memcached had no room for is missing, no more"
    return cache, items, once


def flags_of(stored, folder, rounds):
    """Reads items, which sets the same flag in each: no such change of a page may be missed."""
    items, chance = folder / "flags", random.Random(3)
    cache = Memcached(folder / "memcached", "-e", items)
    cache.set_all((key, chance.randbytes(VALUE_BYTES)) for key in range(ITEMS))
    before, changed, missed = b"", 0, 0
    for _ in range(rounds + 1):
        cache.process.send_signal(signal.SIGSTOP)
        stored.store(items)
        now = items.read_bytes()
        kept = subprocess.run([stored.program, "cat", f"latest:{items}"], env=stored.environment,
                              capture_output=True, check=True).stdout
        cache.process.send_signal(signal.SIGCONT)
        pages = [slice(at, at + PAGE_BYTES) for at in range(0, len(now), PAGE_BYTES)]
        changed += sum(now[page] != before[page] for page in pages) if before else 0
        missed += sum(now[page] != kept[page] for page in pages)
        before = now
        for key in chance.sample(range(ITEMS), ITEMS // 15):
            cache.get(key)
    cache.process.kill()
    cache.process.wait()
    say(f"memcached: {changed} pages were changed by reading items, {missed} of them missed")
    assert changed > 0 and missed == 0


def control_group(process):
    line = next(line for line in open("/proc/self/mounts") if line.split()[2] == "cgroup2")
    group = pathlib.Path(line.split()[1]) / f"strongroom-campaign-{os.getpid()}"
    group.mkdir()
    (group / "cgroup.procs").write_text(str(process.pid))
    return group


def slow_down(stored, cache, items):
    """How long single answers take before, while and after the region is stored."""
    times, is_ended = [], threading.Event()

    def load():
        chance = random.Random(16)
        mine = Memcached.__new__(Memcached)
        mine.socket_path = cache.socket_path
        mine.stream = mine.connect()
        while not is_ended.is_set():
            begun = time.monotonic()
            key = chance.randrange(ITEMS)
            if chance.random() < 0.1:
                mine.stream.write(b"set key%d 0 0 4\r\nloud\r\n" % key)
                mine.stream.flush()
                mine.stream.readline()
            else:
                mine.get(key)
            times.append((begun, time.monotonic() - begun))
            time.sleep(0.0005)

    group = control_group(cache.process)
    thread = threading.Thread(target=load)
    thread.start()
    ways = {"read again and again": ["--accept-fuzzy"], "frozen": ["--freeze", group]}
    for name, words in ways.items():
        time.sleep(LOAD_SECONDS)
        spans, passes = [], []
        for _ in range(5):
            begun = time.monotonic()
            passes.append(stored.store(items, *words)["passes"])
            spans.append((begun, time.monotonic()))
            time.sleep(1)
        time.sleep(LOAD_SECONDS)
        first, last = spans[0][0], spans[-1][1]
        parts = {
            "before": [took for at, took in times if first - LOAD_SECONDS < at < first],
            "during": [took for at, took in times if any(a <= at + took and at <= b for a, b in spans)],
            "after": [took for at, took in times if last < at < last + LOAD_SECONDS],
        }
        shown = ", ".join(
            f"{part} {1000 * statistics.quantiles(took, n=100)[98]:.2f} ms (longest {1000 * max(took):.1f})"
            for part, took in parts.items())
        say(f"memcached while it is stored, {name}: p99 {shown}; a store took "
            f"{statistics.median(b - a for a, b in spans):.2f} s")
    is_ended.set()
    thread.join()
    cache.process.kill()
    cache.process.wait()
    group.rmdir()
