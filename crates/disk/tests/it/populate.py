"""Fills the current directory with all that a tree can have. The arguments are the size of a block
and a salt."""

import ctypes
import os
import random
import socket
import stat
import subprocess
import sys

block, salt = int(sys.argv[1]), int(sys.argv[2])
r = random.Random(salt)
libc = ctypes.CDLL(None, use_errno=True)


def allocate(file, mode, start, count):
    """Older file systems cannot; then the file is left as it is."""
    libc.fallocate(file.fileno(), mode, ctypes.c_long(start * block), ctypes.c_long(count * block))


def write(name, content=b''):
    with open(name, 'wb') as file:
        file.write(content)


def attribute(name, key, value):
    """A block of attributes can be too small for all; what fits is compared."""
    try:
        os.setxattr(name, key, value, follow_symlinks=False)
    except OSError:
        pass


for folder in ('many', 'deep', 'n' * 250, 'empty', b'odd', b'odd/\xff\xfe\x01 name'):
    os.mkdir(folder)
for i in range(700):
    write(f'many/a-rather-long-name-of-a-file-{i}', b'file %d %d\n' % (i, salt))
folder = 'deep'
for i in range(30):
    folder += f'/level-{i}'
    os.mkdir(folder)
    write(folder + '/file', b'%d' % i)
write('nothing')
sizes = (1, 40, 59, 60, 61, 100, 150, 200, 1000, block - 1, block, block + 1)
for size in (*sizes, 13 * block + 5, 300 * block + 7):
    write(f'size-{size}', r.randbytes(size))
with open('sparse', 'wb') as file:
    for at in (0, 3 * block, 20 * block, 5000 * block, 9000 * block + 11):
        file.seek(at)
        file.write(r.randbytes(2 * block))
    file.truncate(10000 * block)
with open('comb', 'wb') as file:
    for i in range(0, 1200, 2):
        file.seek(i * block)
        file.write(r.randbytes(block))
socket.socket(socket.AF_UNIX).bind('socket')
with open('allocated', 'wb') as file:
    allocate(file, 0, 0, 50)
with open('beyond', 'wb') as file:
    allocate(file, 1, 0, 50)
    file.write(b'short')
with open('half-written', 'wb') as file:
    allocate(file, 0, 0, 40)
    file.seek(7 * block)
    file.write(r.randbytes(2 * block + 1))
with open('punched', 'wb') as file:
    file.write(r.randbytes(300 * block))
    file.flush()
    allocate(file, 3, 10, 5)

os.link('nothing', 'hard-1')
os.link('nothing', 'empty/hard-2')
os.link('size-1000', 'hard-3')
for length in (1, 59, 60, 61, 150, 1000):
    os.symlink('t' * length, f'link-{length}')
os.mkfifo('fifo')
for name, kind, major, minor in (
    ('char', stat.S_IFCHR, 5, 1),
    ('wide-char', stat.S_IFCHR, 300, 70000),
    ('block', stat.S_IFBLK, 8, 17),
    ('wide-block', stat.S_IFBLK, 259, 1048575),
):
    try:
        os.mknod(name, kind | 0o640, os.makedev(major, minor))
    except OSError:  # XFS has 18 bits for it.
        os.mknod(name, kind | 0o640, os.makedev(major, 200000))
os.chown('size-1', 70000, 80000)
os.chown('link-1', 5, 6, follow_symlinks=False)
os.chmod('size-60', 0o6755)
os.chmod('empty', 0o1777)
for seconds in (-2048000000, -1, 2**31 + 5, 2**32, 2**33 - 7, 8530000000):
    name = f'time-{seconds}'
    write(name)
    os.utime(name, ns=(0, seconds * 10**9 + 123456789))

attribute('size-100', 'user.small', b'yes')
attribute('size-100', 'trusted.x', b'\0\1\xff')
attribute('empty', 'security.other', b'text')
attribute('size-61', 'user.empty', b'')
for i in range(8):
    attribute('size-59', f'user.attribute-{i}', b'%070d' % i)
attribute('size-200', 'user.big', b'x' * 700)
attribute('size-1000', 'user.huge', r.randbytes(20000))
attribute('size-1000', 'user.larger-than-a-block', r.randbytes(4500))
attribute('link-150', 'trusted.on-link', b'l')
attribute('link-1', 'trusted.on-short-link', b'l' * 300)
attribute('many', 'user.on-dir', b'y' * 300)
for arguments in (['-m', 'u:1000:rwx,g:7:r,u:70000:-', 'size-150'], ['-d', '-m', 'u:3:rx,g::w', 'deep']):
    subprocess.run(['setfacl', *arguments], check=True)
write('deep/inherits', b'x')
os.mkdir('deep/inherits-too')
for i in range(0, 700, 5):
    os.remove(f'many/a-rather-long-name-of-a-file-{i}')
