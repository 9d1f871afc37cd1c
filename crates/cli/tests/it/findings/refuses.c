// Preloaded into the program under test: reads of some files fail as a bad sector makes them fail.
//
// BAD_INODE names a file, or BAD_PATH a part of paths; the bytes from BAD_FROM up to BAD_TO cannot
// be read.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static unsigned long long number(const char *name) {
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : 0;
}

static int is_bad(int fd) {
    struct stat stat;
    char link[64], path[4096];
    const char *part = getenv("BAD_PATH");
    if (!part) {
        return fstat(fd, &stat) == 0 && (unsigned long long)stat.st_ino == number("BAD_INODE");
    }
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length < 0 ? 0 : length] = 0;
    return strstr(path, part) != NULL;
}

static int refuses(int fd, unsigned long long from, size_t length) {
    return is_bad(fd) && from < number("BAD_TO") && number("BAD_FROM") < from + length;
}

ssize_t pread64(int fd, void *bytes, size_t length, off64_t offset) {
    static ssize_t (*real)(int, void *, size_t, off64_t);
    if (!real) {
        real = (ssize_t(*)(int, void *, size_t, off64_t))dlsym(RTLD_NEXT, "pread64");
    }
    if (refuses(fd, (unsigned long long)offset, length)) {
        errno = EIO;
        return -1;
    }
    return real(fd, bytes, length, offset);
}
