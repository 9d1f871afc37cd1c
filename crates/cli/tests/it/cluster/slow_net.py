"""A network that is slow and brings datagrams in another order: one card for each name.

    slow_net.py LEAST_MS MOST_MS NAME...

What is sent on a card arrives on all others, UDP after a time of its own between the two, all else after
the least. The cards can be moved into other network namespaces; they are gone when this process ends.
Prints `ready` once they are there."""
import fcntl, heapq, os, random, select, struct, sys, time

TUNSETIFF, TAP, NO_HEADER = 0x400454CA, 0x0002, 0x1000
FRAME_BYTES_MAX = 1 << 16
IPV4, IPV6, UDP = 0x0800, 0x86DD, 17


def card(name):
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH22x", name.encode(), TAP | NO_HEADER))
    return descriptor


def is_udp(frame):
    kind = int.from_bytes(frame[12:14], "big")
    return (kind == IPV4 and frame[23] == UDP) or (kind == IPV6 and frame[20] == UDP)


def main():
    least, most = (int(word) / 1000 for word in sys.argv[1:3])
    cards = [card(name) for name in sys.argv[3:]]
    print("ready", flush=True)
    chance, due, number = random.Random(5), [], 0
    while True:
        wait = max(0, due[0][0] - time.monotonic()) if due else None
        for source in select.select(cards, [], [], wait)[0]:
            try:
                frame = os.read(source, FRAME_BYTES_MAX)
            except OSError:
                continue
            for target in cards:
                if target != source:
                    late = chance.uniform(least, most) if is_udp(frame) else least
                    number += 1
                    heapq.heappush(due, (time.monotonic() + late, number, target, frame))
        while due and due[0][0] <= time.monotonic():
            _, _, target, frame = heapq.heappop(due)
            try:
                os.write(target, frame)
            except OSError:
                pass  # It is not up.


main()
