"""A program with a bucket that does what a test says: each line of its input is a statement or an
expression of Python. It answers each with a line of JSON: the value, or what failed."""

import ctypes
import json
import mmap
import os
import sys
import time

from strongroom_bucket import Bucket, BucketError

answers = sys.stdout


def touch(path):
    with open(path, "w") as file:
        file.write("here")


def block(path):
    """Holds up a callback until the program is killed."""
    touch(path)
    while True:
        time.sleep(60)


def noise(count, seed):
    import random

    return random.Random(seed).randbytes(count)


def shared(count):
    """A memory file, and a mapping of it."""
    fd = os.memfd_create("shared")
    os.ftruncate(fd, count)
    return fd, mmap.mmap(fd, count)


def carry_out(line):
    try:
        try:
            code = compile(line, "line", "eval")
        except SyntaxError:
            exec(line, globals())
            return {"value": None}
        return {"value": eval(code, globals())}
    except BucketError as error:
        return {"failed": str(error), "code": error.code}
    except Exception as error:
        return {"failed": repr(error), "code": 0}


for line in sys.stdin:
    answer = carry_out(line.strip())
    print(json.dumps(answer, default=repr), file=answers, flush=True)
