/* Every function of the library, for tests/it/foreign.rs: it says what it reached, and waits for a line
 * before it goes on. */

#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <strongroom-bucket.h>

#define BYTES 50000

struct counts {
    atomic_int quiesced, resumed, evicted, loaded;
    sr_bucket *bucket;
};

static int quiesce(void *context) {
    struct counts *counts = context;
    /* Allowed within a callback, and what is not allowed is refused. */
    if (sr_range(counts->bucket, "a", 1, NULL, 0, 2) != SR_OK)
        return 1;
    if (sr_store(counts->bucket, "n", 99) != SR_IN_CALLBACK)
        return 2;
    return counts->quiesced++ == 0 ? 0 : 3;
}

static void resume(void *context) {
    ((struct counts *)context)->resumed++;
}

static int evict(void *context) {
    ((struct counts *)context)->evicted++;
    return 0;
}

static int loaded(void *context) {
    ((struct counts *)context)->loaded++;
    return 0;
}

static void expect(int code, int expected, const char *what) {
    if (code != expected) {
        printf("%s: %d instead of %d: %s\n", what, code, expected, sr_error());
        exit(1);
    }
}

static void reached(const char *where) {
    char line[16];
    printf("%s\n", where);
    fflush(stdout);
    if (fgets(line, sizeof line, stdin) == NULL)
        exit(1);
}

int main(void) {
    static char heap[BYTES];
    struct counts counts = {0};
    struct sr_callbacks callbacks = {quiesce, resume, evict, &counts, loaded};
    sr_bucket *bucket;
    uint64_t version = 0;

    expect(sr_open("/nowhere/ram.sock", "orders", 3, &bucket), SR_NO_AGENT, "open nowhere");
    if (bucket != NULL || strstr(sr_error(), "no agent listens") == NULL)
        expect(1, 0, sr_error());
    expect(sr_open(NULL, NULL, 3, &bucket), SR_INVALID, "open null");
    expect(sr_open(NULL, "a/b", 3, &bucket), SR_INVALID, "open slash");
    expect(sr_open(NULL, "orders", 3, &bucket), SR_OK, "open");
    counts.bucket = bucket;

    int fd = memfd_create("data", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, BYTES) != 0)
        return 1;
    char *data = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    memset(data, 2, BYTES);
    memset(heap, 1, BYTES);
    expect(sr_region(bucket, "data", fd, data, BYTES), SR_OK, "region data");
    expect(sr_region(bucket, "heap", -1, heap, BYTES), SR_OK, "region heap");
    expect(sr_region(bucket, "more", -1, heap, 10), SR_OK, "region more");
    expect(sr_region(bucket, "more", -1, NULL, 0), SR_OK, "forget more");
    expect(sr_region(bucket, "bucket.json", -1, heap, 10), SR_INVALID, "region reserved");
    expect(sr_region(bucket, "heap", -1, NULL, 10), SR_INVALID, "region null");
    expect(sr_region(NULL, "heap", -1, heap, 10), SR_INVALID, "region no bucket");
    expect(sr_range(bucket, "b", 1, "a", 1, 1), SR_INVALID, "range");
    expect(sr_range(bucket, NULL, 0, "m", 1, 1), SR_OK, "range");

    expect(sr_test(bucket, "n", &version), SR_NONE, "test none");
    expect(sr_store(bucket, "n", 7), SR_OK, "store");
    expect(sr_wait(bucket, "n", 7), SR_OK, "wait");
    expect(sr_wait(bucket, "n", 8), SR_FAILED, "wait for nothing");
    expect(sr_test(bucket, "n", &version), SR_OK, "test");
    expect(version, 7, "version");
    memset(data, 3, BYTES);
    memset(heap, 4, BYTES);
    expect(sr_load(bucket, "n", 8), SR_NO_VERSION, "load nothing");
    expect(sr_load(bucket, "n", 7), SR_OK, "load");
    expect(heap[BYTES - 1] == 1 && data[BYTES - 1] == 2, 1, "content");
    expect(sr_region(bucket, "heap", -1, heap, BYTES - 1), SR_OK, "region shorter");
    expect(sr_load(bucket, "n", 7), SR_MISMATCH, "load shorter");
    expect(sr_region(bucket, "heap", -1, heap, BYTES), SR_OK, "region again");

    callbacks.quiesce = NULL;
    expect(sr_on_quiesce(bucket, &callbacks), SR_INVALID, "callbacks without quiesce");
    callbacks.quiesce = quiesce;
    expect(sr_on_quiesce(bucket, &callbacks), SR_OK, "callbacks");
    reached("registered");
    /* The agent stored, and was refused the second time. */
    expect(counts.quiesced, 2, "quiesced");
    expect(counts.resumed, 1, "resumed");
    expect(sr_evict(bucket), SR_OK, "evict");
    expect(counts.evicted, 1, "evicted");
    sr_close(bucket);
    sr_close(NULL);
    printf("done\n");
    return 0;
}
