/* A program that counts, and goes on where it was when it is killed and started again.
 *
 *     cc -o counter counter.c -lstrongroom-bucket
 *     ./counter 1000
 *
 * It needs an agent: `strongroom ram agent`.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <strongroom-bucket.h>

#define SLOTS 100000
#define STORE_EACH 10

/* All that is to be kept: a plain structure without pointers. */
static struct {
    uint64_t steps;
    uint64_t slots[SLOTS];
} state;

static void check(int code, const char *what) {
    if (code < 0) {
        fprintf(stderr, "counter: %s: %s\n", what, sr_error());
        exit(1);
    }
}

int main(int argc, char **argv) {
    uint64_t until = argc > 1 ? strtoull(argv[1], NULL, 10) : 100;
    uint64_t version;
    sr_bucket *bucket;

    check(sr_open(NULL, "counter", 0, &bucket), "open");
    check(sr_region(bucket, "state", -1, &state, sizeof state), "region");

    int found = sr_test(bucket, "steps", &version);
    check(found, "test");
    if (found == SR_OK) {
        check(sr_load(bucket, "steps", version), "load");
        printf("goes on at step %llu\n", (unsigned long long)state.steps);
        fflush(stdout);
    }

    while (state.steps < until) {
        state.steps += 1;
        state.slots[state.steps * 7919 % SLOTS] += state.steps;
        if (state.steps % STORE_EACH == 0) {
            /* Returns once the state is copied, so the next step need not wait for the disk. */
            check(sr_store(bucket, "steps", state.steps), "store");
        }
    }

    uint64_t sum = 0;
    for (size_t i = 0; i < SLOTS; i++)
        sum += state.slots[i];
    if (until >= STORE_EACH)
        check(sr_wait(bucket, "steps", until - until % STORE_EACH), "wait");
    printf("%llu steps, sum %llu\n", (unsigned long long)state.steps, (unsigned long long)sum);
    sr_close(bucket);
    return 0;
}
