/* Heat spreads over a plate, row by row of cells, on one process or on several. The program makes a
 * checkpoint each few steps, and goes on from the newest one if there is one.
 *
 *     heat CELLS STEPS EACH PAUSE_MICROSECONDS CONFIGURATION regions|file
 *
 * It writes its process, where it began, and at the end a sum that depends on each cell.
 */

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "veloc.h"

static int rank, ranks = 1;

static void fail(const char *what) {
    fprintf(stderr, "heat: rank %d: %s failed\n", rank, what);
    exit(2);
}

#define CHECK(call) \
    do { \
        if ((call) != VELOC_SUCCESS) \
            fail(#call); \
    } while (0)

/* The plate of this rank: `rows` rows of `cells` cells, and one row of each neighbour around them. */
static size_t cells, rows;
static double *now, *next;
static int step;

static double *row(double *plate, size_t number) {
    return plate + number * cells;
}

/* Gets the rows of the neighbours. */
static void exchange(void) {
#ifndef VELOC_NO_MPI
    int above = rank > 0 ? rank - 1 : MPI_PROC_NULL;
    int below = rank < ranks - 1 ? rank + 1 : MPI_PROC_NULL;
    MPI_Sendrecv(row(now, 1), (int)cells, MPI_DOUBLE, above, 1, row(now, rows + 1), (int)cells,
                 MPI_DOUBLE, below, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(row(now, rows), (int)cells, MPI_DOUBLE, below, 2, row(now, 0), (int)cells,
                 MPI_DOUBLE, above, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
#endif
}

static void spread(void) {
    exchange();
    for (size_t i = 1; i <= rows; i++) {
        double *to = row(next, i), *here = row(now, i);
        double *above = row(now, i - 1), *below = row(now, i + 1);
        to[0] = here[0];
        to[cells - 1] = here[cells - 1];
        for (size_t j = 1; j + 1 < cells; j++)
            to[j] = 0.25 * (above[j] + below[j] + here[j - 1] + here[j + 1]);
    }
    /* The addresses are protected, so the content moves. */
    memcpy(row(now, 1), row(next, 1), rows * cells * sizeof(double));
}

static uint64_t mixed(void) {
    uint64_t sum = 0;
    for (size_t i = 1; i <= rows; i++)
        for (size_t j = 0; j < cells; j++) {
            uint64_t bits;
            memcpy(&bits, &row(now, i)[j], sizeof bits);
            sum = (sum ^ bits) * 0x100000001b3;
        }
    return sum;
}

static void transfer(FILE *file, int is_reading) {
    size_t count = (rows + 2) * cells;
    size_t steps = is_reading ? fread(&step, sizeof step, 1, file)
                              : fwrite(&step, sizeof step, 1, file);
    size_t done = is_reading ? fread(now, sizeof(double), count, file)
                             : fwrite(now, sizeof(double), count, file);
    if (steps != 1 || done != count || fclose(file) != 0)
        fail("the routed file");
}

static void save(int is_file) {
    if (!is_file) {
        CHECK(VELOC_Checkpoint("heat", step));
        return;
    }
    char path[VELOC_MAX_NAME];
    CHECK(VELOC_Checkpoint_wait());
    CHECK(VELOC_Checkpoint_begin("heat", step));
    CHECK(VELOC_Route_file("plate.dat", path));
    FILE *file = fopen(path, "wb");
    if (file == NULL)
        fail("fopen");
    transfer(file, 0);
    CHECK(VELOC_Checkpoint_end(1));
}

static void go_back(int version, int is_file) {
    if (!is_file) {
        CHECK(VELOC_Restart("heat", version));
        return;
    }
    char path[VELOC_MAX_NAME];
    CHECK(VELOC_Restart_begin("heat", version));
    CHECK(VELOC_Route_file("plate.dat", path));
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        fail("fopen");
    transfer(file, 1);
    CHECK(VELOC_Restart_end(1));
}

static void report(const char *what, uint64_t number) {
#ifndef VELOC_NO_MPI
    MPI_Barrier(MPI_COMM_WORLD);
#endif
    printf("rank %d %s %" PRIu64 "\n", rank, what, number);
    fflush(stdout);
}

int main(int argc, char **argv) {
    if (argc != 7)
        return 1;
    cells = strtoul(argv[1], NULL, 10);
    int steps = atoi(argv[2]), each = atoi(argv[3]);
    useconds_t pause = (useconds_t)atoi(argv[4]);
    int is_file = strcmp(argv[6], "file") == 0;
#ifdef VELOC_NO_MPI
    CHECK(VELOC_Init_single(0, argv[5]));
#else
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    CHECK(VELOC_Init(MPI_COMM_WORLD, argv[5]));
#endif
    report("is process", (uint64_t)getpid());
    rows = cells / (size_t)ranks;
    now = calloc((rows + 2) * cells, sizeof(double));
    next = calloc((rows + 2) * cells, sizeof(double));
    for (size_t j = 0; j < cells && rank == 0; j++)
        row(now, 1)[j] = row(now, 0)[j] = 100.0 + (double)j;

    if (!is_file) {
        CHECK(VELOC_Mem_protect(0, &step, 1, sizeof step));
        CHECK(VELOC_Mem_protect(1, now, (rows + 2) * cells, sizeof(double)));
    }
    int version = VELOC_Restart_test("heat", 0);
    if (version > 0)
        go_back(version, is_file);
    report("begins at", (uint64_t)step);
    while (step < steps) {
        spread();
        step++;
        usleep(pause);
        if (step % each == 0)
            save(is_file);
    }
    CHECK(VELOC_Finalize(1));
    report("ends with", mixed());
    free(now);
    free(next);
#ifndef VELOC_NO_MPI
    MPI_Finalize();
#endif
    return 0;
}
