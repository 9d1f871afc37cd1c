"""Fills the current folder, which ntfs-3g shows, with files of all kinds."""

import os
import random
import subprocess
import sys

salt = int(sys.argv[1])
random.seed(salt)


def write(name, content):
    with open(name, "wb") as file:
        file.write(content)


def noise(count):
    return random.randbytes(count)


os.makedirs("folder/inner/deeper")
for name, count in [("empty", 0), ("tiny", 50), ("record", 500), ("more", 5000), ("large", 700_001)]:
    write(f"folder/{name}", noise(count))
    os.utime(f"folder/{name}", ns=(0, 1_234_567_890_123_456_700 + salt * 100))
write("Größe 𝄞 €", b"unicode")
write("x" * 250, b"long")
os.makedirs("many")
for n in range(400):
    write(f"many/{n:03}-" + "n" * (n % 80), noise(n * 3))
for n in range(0, 400, 3):
    os.remove(f"many/{n:03}-" + "n" * (n % 80))
write("linked", noise(3000))
os.link("linked", "folder/inner/also")
os.link("linked", "other name")
os.symlink("folder/inner", "link")
os.symlink("../" * 30 + "Größe", "folder/far")
os.chmod("folder/record", 0o444)

# Streams are extended attributes; one of them is large.
os.setxattr("folder/more", "user.Zone.Identifier", b"[ZoneTransfer]\r\nZoneId=3\r\n")
os.setxattr("folder/more", "user.larger", noise(30_000))
os.setxattr("folder", "user.of a folder", b"value")
os.setxattr("folder/empty", "user.empty", b"")

# Holes, at the start, inside and at the end.
with open("holes", "wb") as file:
    for at in (200_000, 500_000, 1_000_000):
        file.seek(at)
        file.write(noise(10_000))
    file.truncate(3_000_000)

# Compressed: what compresses well, what does not, and holes.
if salt % 2 == 0:
    os.makedirs("packed")
    os.setxattr("packed", "system.ntfs_attrib_be", (0x800).to_bytes(4, "big"))
    text = b"".join(b"line %d of a text that compresses\n" % random.randrange(900) for _ in range(9000))
    write("packed/text", text)
    write("packed/noise", noise(200_000))
    write("packed/mixed", text[:100_000] + noise(100_001) + bytes(300_000) + text[:77])
    write("packed/zeros", bytes(500_000))
    write("packed/small", b"small")
    with open("packed/holes", "wb") as file:
        file.seek(333_333)
        file.write(text[:50_000])

# A file in more pieces than one record can describe.
os.makedirs("small")
# The volume with salt 1 has large clusters.
count = 200 if salt == 1 else 500
for n in range(count):
    write(f"small/{n}", bytes([n % 251]) * 4096)
try:
    with open("filler", "wb", buffering=0) as file:
        while True:
            file.write(bytes([7]) * 4096)
except OSError:
    pass
for n in range(0, count, 2):
    os.remove(f"small/{n}")
with open("pieces", "wb", buffering=0) as file:
    for n in range(220):
        file.seek(n * 8192)
        file.write(noise(4096))
os.remove("filler")
for n in range(1, count, 2):
    os.remove(f"small/{n}")
subprocess.run(["sync", "-f", "."], check=True)
