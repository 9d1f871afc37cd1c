/* For programs that keep buckets of a file in memory: a node's agent (`strongroom ram agent`) stores,
 * loads and evicts them. See strongroom-bucket(3).
 *
 *     sr_bucket *bucket;
 *     if (sr_open(NULL, "orders", 3, &bucket) != SR_OK)
 *         errx(1, "%s", sr_error());
 *     sr_region(bucket, "data", -1, data, sizeof data);
 *     sr_store(bucket, "nightly", 7);      // the memory may change again
 *     sr_wait(bucket, "nightly", 7);       // it is stored
 *
 * Functions return SR_OK, or a negative number; sr_error() then says what failed and what to do next.
 * They may be called from any thread. The library has two threads for each bucket, which take none of
 * the program's signals. A child made by fork() must not use the handle, not even to close it. All text
 * is UTF-8.
 */

#ifndef STRONGROOM_BUCKET_H
#define STRONGROOM_BUCKET_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What functions return. */
enum {
    SR_OK = 0,
    SR_NONE = 1,         /* sr_test: no version has this name */
    SR_INVALID = -1,     /* an argument is not allowed */
    SR_NO_AGENT = -2,    /* no agent listens on the socket */
    SR_REFUSED = -3,     /* the agent does not take the bucket, or an area */
    SR_AGENT_GONE = -4,  /* the agent ended during the call; the next call connects again */
    SR_FAILED = -5,      /* the agent could not do it */
    SR_MISMATCH = -6,    /* areas are missing, or not as long as they were stored */
    SR_NO_VERSION = -7,  /* no such version is stored */
    SR_SYSTEM = -8,      /* no memory, threads or descriptors are left, or a descriptor is of no use */
    SR_IN_CALLBACK = -9, /* the call is not allowed within a callback */
    SR_INTERNAL = -10    /* a bug of the library */
};

/* A bucket of a file, and the connection with the agent. */
typedef struct sr_bucket sr_bucket;

/* What the program does when the agent asks. The functions are called one at a time, from a thread of
 * the library. They may call sr_region and sr_range. They must return in any case: no longjmp, no
 * exception. */
struct sr_callbacks {
    /* Returns 0 once no change of the areas is under way; none may begin until `resume`. Another number
     * refuses: then the program goes on, and nothing is stored. It may wait for a thread that is in
     * sr_store, and not for one in sr_evict, which waits for `evict`. */
    int (*quiesce)(void *context);
    /* The program may go on. It is called after each `quiesce` that returned 0, also if the agent
     * ended, unless `evict` returned 0 meanwhile. */
    void (*resume)(void *context);
    /* Frees the memory of all areas, which is stored, and returns 0. Another number keeps it. NULL:
     * the memory is never freed. */
    int (*evict)(void *context);
    /* Handed to each function. */
    void *context;
    /* The areas of the program, which holds still, were filled from a stored version. Returns 0 if they
     * are of use. May be NULL. */
    int (*loaded)(void *context);
};

/* Opens bucket `number` of `file`. `socket` is the agent's; if it is NULL, the environment names it in
 * STRONGROOM_RAM_SOCKET, otherwise it is /run/strongroom/ram.sock. `file` has at most 64 bytes, no slash
 * and no control character. Register areas and the range next, and callbacks last; a program that has no
 * data yet, and waits to be loaded, says no range. */
int sr_open(const char *socket, const char *file, uint32_t number, sr_bucket **bucket);

/* Registers an area of `length` bytes. It replaces the area of that name. A bucket has at most 512
 * areas; a name has at most 64 bytes, no slash and no control character, and is not `bucket.json`.
 *
 * fd >= 0, which is open: shared memory, which the agent reads by the descriptor (memfd, POSIX shared memory,
 * hugetlbfs, a file). It is open for reading, and for writing if it is to be loaded. The library keeps a
 * duplicate. `base` is recorded as the address at which the
 * program maps it, and may be NULL.
 *
 * fd = -1: private memory at `base`. The library keeps a copy of its pages that are not zero. The memory
 * must be valid until the area is replaced or forgotten, evicted, or the bucket is closed. No thread
 * may change it during sr_store and sr_evict and between `quiesce` and `resume`, nor use it during
 * sr_load.
 *
 * length = 0: the area is forgotten.
 *
 * Outside of callbacks the call waits until what is being captured is captured: no callback may wait for
 * a thread that is in it. */
int sr_region(sr_bucket *bucket, const char *area, int fd, void *base, uint64_t length);

/* Says that the bucket holds the keys from `lo` on, up to but without `hi`; `hi` NULL: up to the last.
 * Keys have at most 64 bytes and are compared byte by byte. `split_version` rises with each split or
 * merge of the bucket.
 *
 * Call it once the memory has what belongs to these keys: a bucket that has keys counts as in memory, and
 * is not loaded by the cluster, unless its areas are all zeros. After `loaded` the bucket has the keys that
 * were stored; a program that finds others in its memory calls it there. */
int sr_range(sr_bucket *bucket, const void *lo, size_t lo_length, const void *hi, size_t hi_length,
             uint64_t split_version);

/* Registers callbacks. Before this call the agent can store nothing by itself; sr_store works without.
 * `quiesce` and `resume` must be there. If it fails, those that were registered before stay. */
int sr_on_quiesce(sr_bucket *bucket, const struct sr_callbacks *callbacks);

/* Stores all areas as a version of `name` (at most 128 bytes, no slash). No change may be under way.
 * Returns as soon as the memory may change again. If all areas are private, the agent may not have
 * captured the copy by then: it is void if the bucket is closed or the program ends before. sr_wait
 * returns when it is stored. */
int sr_store(sr_bucket *bucket, const char *name, uint64_t version);

/* Waits until a version is stored and committed, as it was stored last, or returns why it is not. If the
 * agent ended before that was known, it fails until the version is stored again: the next agent may
 * have an older one of that number. */
int sr_wait(sr_bucket *bucket, const char *name, uint64_t version);

/* Sets `version` to the newest stored one of `name`. SR_NONE: there is none. */
int sr_test(sr_bucket *bucket, const char *name, uint64_t *version);

/* Fills the areas from a version. All areas that were stored must be registered, as long as they were;
 * otherwise nothing changes and SR_MISMATCH is returned. */
int sr_load(sr_bucket *bucket, const char *name, uint64_t version);

/* Has the bucket stored as the newest version of the name `evicted`, committed, and compared, then freed
 * by the callback `evict`. Without callbacks the caller frees it when this returns. Then no area is
 * registered any more. With callbacks, but without `evict`, it fails and nothing is freed. `quiesce` is
 * not called before `evict` here, as it is if the agent evicts: the caller is at a safe point. */
int sr_evict(sr_bucket *bucket);

/* Closes a bucket. A callback that is under way ends first, and no other begins, except `resume` if the
 * program holds still. Stores that are not captured are void. NULL is allowed. */
void sr_close(sr_bucket *bucket);

/* What failed last in this thread. The text lives until the thread's next call. */
const char *sr_error(void);

#ifdef __cplusplus
}
#endif

#endif
