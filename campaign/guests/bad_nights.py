"""Nights on which something is wrong: each must end as it is said, the guest must live on, and the
next night must be right."""
import os, signal, subprocess, tempfile, time

# Exit codes of the program.
FAILED, INCOMPLETE, MACHINE_LOST = 1, 3, 7
STORE_MIB, BURST_MIB = 8, 64
FREEZE_LIMIT = 4


def all(machines, is_short):
    """Has them all; with `is_short` only the last is followed by a good night."""
    following = Following(machines, is_short)
    bitmap_removed(machines)
    following.night(is_whole=True)
    agent_hangs(machines)
    following.night()
    for name, arguments in [("a full store", []),
                            ("the limit of the store", ["--store-limit", f"{STORE_MIB}MiB"])]:
        store_full(machines, name, arguments)
        following.night()
    killed(machines, following)
    qemu_killed(machines)
    following.night(is_last=True, is_whole=True, burst_mib=BURST_MIB)


class Following:
    """The nights after the bad ones."""

    def __init__(self, machines, is_short):
        self.machines, self.is_short = machines, is_short
        self.number = len(machines.nights)

    def night(self, is_last=False, is_whole=False, burst_mib=0):
        """A good night; `is_whole`: all of the disk has to be read. Since the last good one the
        guest has written so much noise besides a day's changes."""
        if self.is_short and not is_last:
            return
        self.number += 1
        self.machines.day(self.number)
        line = self.machines.night(self.number)
        if is_whole:
            self.machines.expect(line["bytes_read"] > 200 << 20,
                                 f"only {line['bytes_read']} bytes were read without a bitmap")
            known = line["stored"] - (burst_mib << 20)
            self.machines.expect(4 * known < self.machines.nights[0]["stored"],
                                 f"{line['stored']} bytes were stored of a disk that was known")
            self.machines.shown(f"without a bitmap all was read, {line['bytes_read'] >> 20} MiB, "
                                f"and {line['stored'] >> 20} MiB were stored")


def lives_on(machines):
    """The guest can write, and nothing of ours is in it."""
    machines.machine.check("echo on >/srv/on && timeout 60 sync && grep -q on /srv/on", 90)
    left = machines.machine.left_in_it()
    machines.expect(not left, f"left in QEMU: {left}")
    status = machines.machine.monitor.execute("query-status")["status"]
    machines.expect(status == "running", f"the guest is {status}")


def begin(machines, *arguments, store=None, reads_seconds=0):
    """A backup whose instant is taken, held before it has read all."""
    run = machines.begin(*arguments, store=store)
    time.sleep(reads_seconds)
    os.kill(run.process.pid, signal.SIGSTOP)
    return run


def go_on(run):
    os.kill(run.process.pid, signal.SIGCONT)
    return run.end()


def expect_end(machines, ended, codes, words, what):
    said = " ".join(ended.text.split())
    machines.expect(ended.code in codes, f"{what} ended with {ended.code}, not {codes}", ended)
    machines.expect(any(word in said for word in words), f"{what} is not in what was said", ended)
    return said


def bitmap_removed(machines):
    """The bitmap that is recording is removed while a backup runs; after it, where QEMU keeps it
    because it is read."""
    run = begin(machines)
    recording = [bitmap for bitmap in machines.machine.bitmaps() if bitmap["recording"]]
    remove_bitmaps(machines, (bitmap for bitmap in recording if not bitmap["busy"]))
    ended = go_on(run)
    recording = [bitmap for bitmap in machines.machine.bitmaps() if bitmap["recording"]]
    machines.expect(recording or ended.code == INCOMPLETE, "no bitmap is recording", ended)
    remove_bitmaps(machines, recording)
    machines.expect(ended.code in (0, INCOMPLETE), f"a removed bitmap ended with {ended.code}", ended)
    lives_on(machines)
    machines.shown(f"the bitmap was removed: the backup ended with {ended.code}")


def remove_bitmaps(machines, bitmaps):
    for bitmap in bitmaps:
        machines.machine.monitor.execute("block-dirty-bitmap-remove", node="disk",
                                         name=bitmap["name"])


def agent_hangs(machines):
    """The guest agent stops: the disks are as after a power failure, unless that is refused."""
    machine = machines.machine
    machine.check("kill -STOP $(pidof qemu-ga)")
    limit = ["--freeze-limit", str(FREEZE_LIMIT)]
    ended = machines.archive.begin_backup(machine, *limit, "--consistency", "required").end()
    expect_end(machines, ended, [FAILED], ["could not be frozen", "agent"], "a hanging agent")
    lives_on(machines)
    ended = machines.archive.begin_backup(machine, *limit).end()
    machines.expect(ended.code == 0, f"a hanging agent ended with {ended.code}", ended)
    machines.expect(ended.summary["consistency"] == "paused", "the guest was frozen after all", ended)
    machine.check("kill -CONT $(pidof qemu-ga)")
    # The agent finds the orders that it did not hear.
    time.sleep(3)
    lives_on(machines)
    machines.shown("the agent hung: refused if a frozen guest is required, otherwise stored as after a "
                   "power failure; afterwards the guest is not frozen")


def store_full(machines, name, arguments):
    """The guest overwrites more than can be kept."""
    machine = machines.machine
    machine.check(f"/srv/inside burst {BURST_MIB}; sync", 300)
    with tempfile.TemporaryDirectory() as small:
        size = f"size={STORE_MIB}m" if not arguments else "size=1g"
        subprocess.run(["mount", "-t", "tmpfs", "-o", size, "none", small], check=True)
        try:
            run = begin(machines, *arguments, store=small)
            machine.check(f"/srv/inside burst {BURST_MIB}; sync", 300)
            ended = go_on(run)
        finally:
            subprocess.run(["umount", "--lazy", small], check=True)
    said = expect_end(machines, ended, [MACHINE_LOST], ["overwrote"], name)
    lives_on(machines)
    machines.shown(f"{name}: exit {ended.code}, the guest wrote on; said: {sentence(said)}")


def killed(machines, following):
    """The backup itself is killed; `machine undo` removes what it has left, as the next backup does."""
    for is_undone in [True, False]:
        run = begin(machines)
        run.process.kill()
        run.end()
        machines.expect(machines.machine.left_in_it(), "a killed backup left nothing to undo")
        if is_undone:
            ended = machines.archive.undo(machines.machine)
            machines.expect(ended.code == 0, f"machine undo ended with {ended.code}", ended)
            lives_on(machines)
    machines.machine.check("echo on >/srv/on && timeout 60 sync", 90)
    machines.shown("a backup was killed: the guest wrote on, and `machine undo` removed what was left")
    following.night()


def qemu_killed(machines):
    """QEMU ends during a backup, and is started again."""
    machines.machine.check(f"/srv/inside burst {BURST_MIB}; sync", 300)
    run = begin(machines, reads_seconds=0.2)
    machines.machine.cut_power()
    ended = go_on(run)
    said = expect_end(machines, ended, [FAILED, MACHINE_LOST], ["QEMU", "ended the connection"],
                      "a killed QEMU")
    machines.machine.start()
    lives_on(machines)
    machines.shown(f"QEMU was killed during a backup: exit {ended.code}; said: {sentence(said)}")


def sentence(said):
    """The words of the error."""
    return said.split('"message":"')[-1].split('"')[0][:200]
