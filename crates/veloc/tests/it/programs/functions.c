/* Every function, on one process without MPI. It ends with 0 if all did what veloc.h says. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VELOC_NO_MPI
#include "veloc.h"

#define EXPECT(condition) \
    do { \
        if (!(condition)) { \
            printf("line %d: %s\n", __LINE__, #condition); \
            exit(1); \
        } \
    } while (0)
#define OK(call) EXPECT((call) == VELOC_SUCCESS)
#define NOT(call) EXPECT((call) == VELOC_FAILURE)

static int numbers[5000];
static double values[3];
static char text[10];

static void regions(void) {
    NOT(VELOC_Checkpoint("a", 1));
    OK(VELOC_Mem_protect(0, numbers, 5000, sizeof(int)));
    OK(VELOC_Mem_protect(-7, values, 3, sizeof(double)));
    OK(VELOC_Mem_protect(3, NULL, 0, sizeof(double)));
    numbers[4999] = 1;
    values[2] = 1.5;
    NOT(VELOC_Restart_test("a", 0));
    NOT(VELOC_Checkpoint("a-b", 1));
    NOT(VELOC_Checkpoint("a", -1));
    NOT(VELOC_Checkpoint_end(1));
    NOT(VELOC_Checkpoint_mem());
    OK(VELOC_Checkpoint("a", 1));
    numbers[4999] = 2;
    OK(VELOC_Checkpoint("a", 2));
    OK(VELOC_Checkpoint_wait());
    OK(VELOC_Checkpoint_finished());
    EXPECT(VELOC_Restart_test("a", 0) == 2);
    EXPECT(VELOC_Restart_test("a", 1) == 1);
    EXPECT(VELOC_Restart_test("b", 0) == VELOC_FAILURE);

    /* Memory may change between _mem and _end. */
    OK(VELOC_Checkpoint_begin("a", 3));
    NOT(VELOC_Checkpoint_begin("a", 4));
    NOT(VELOC_Checkpoint_wait());
    NOT(VELOC_Restart_begin("a", 1));
    numbers[4999] = 3;
    OK(VELOC_Checkpoint_mem());
    numbers[4999] = 4;
    OK(VELOC_Checkpoint_end(1));
    OK(VELOC_Restart("a", 3));
    EXPECT(numbers[4999] == 3 && values[2] == 1.5);
    NOT(VELOC_Restart("a", 9));
    NOT(VELOC_Recover_mem());
    NOT(VELOC_Restart_end(1));
}

static void some(void) {
    int ids[] = {0}, others[] = {-7};
    numbers[0] = 5;
    values[0] = 5;
    OK(VELOC_Checkpoint_begin("some", 1));
    OK(VELOC_Checkpoint_selective(VELOC_CKPT_SOME, ids, 1));
    NOT(VELOC_Checkpoint_selective(9, ids, 1));
    OK(VELOC_Checkpoint_end(1));
    OK(VELOC_Checkpoint_begin("some", 2));
    OK(VELOC_Checkpoint_selective(VELOC_CKPT_REST, ids, 1));
    OK(VELOC_Checkpoint_end(1));
    OK(VELOC_Checkpoint_begin("some", 3));
    OK(VELOC_Checkpoint_mem());
    OK(VELOC_Checkpoint_end(1));
    numbers[0] = 6;
    values[0] = 6;
    OK(VELOC_Restart("some", 1));
    EXPECT(numbers[0] == 5 && values[0] == 6);
    OK(VELOC_Restart_begin("some", 2));
    EXPECT(VELOC_Recover_size(-7) == 24);
    NOT(VELOC_Recover_size(0));
    OK(VELOC_Restart_end(1));
    numbers[0] = 6;
    OK(VELOC_Restart_begin("some", 3));
    EXPECT(VELOC_Recover_size(0) == sizeof numbers);
    OK(VELOC_Recover_selective(VELOC_RECOVER_REST, ids, 1));
    EXPECT(numbers[0] == 6 && values[0] == 5);
    values[0] = 7;
    OK(VELOC_Recover_selective(VELOC_RECOVER_SOME, ids, 1));
    EXPECT(numbers[0] == 5 && values[0] == 7);
    /* A longer region takes what was stored; a shorter one does not. */
    OK(VELOC_Mem_protect(-7, values, 2, sizeof(double)));
    NOT(VELOC_Recover_selective(VELOC_RECOVER_SOME, others, 1));
    OK(VELOC_Restart_end(1));
    OK(VELOC_Mem_protect(-7, values, 3, sizeof(double)));
    OK(VELOC_Mem_protect(-7, values, 1, sizeof(double)));
    OK(VELOC_Checkpoint("short", 1));
    OK(VELOC_Mem_protect(-7, values, 3, sizeof(double)));
    values[0] = 8;
    values[1] = 8;
    OK(VELOC_Restart("short", 1));
    EXPECT(values[0] == 7 && values[1] == 8);
}

static void groups(void) {
    strcpy(text, "group");
    OK(VELOC_Region_protect(0, text, 1, sizeof text, "named"));
    OK(VELOC_Checkpoint("named", 1));
    strcpy(text, "other");
    numbers[0] = 9;
    OK(VELOC_Restart("named", 1));
    EXPECT(strcmp(text, "group") == 0 && numbers[0] == 9);
    OK(VELOC_Region_unprotect(0, "named"));
    NOT(VELOC_Region_unprotect(0, "named"));
    OK(VELOC_Region_protect(1, text, 1, sizeof text, "named"));
    OK(VELOC_Region_clear("named"));
    /* Without regions of its own a name has those of the default group. */
    OK(VELOC_Restart("named", 1));
    EXPECT(memcmp(numbers, "group", 6) == 0);
    OK(VELOC_Mem_unprotect(0));
    NOT(VELOC_Mem_unprotect(0));
    NOT(VELOC_Restart("a", 1));
    OK(VELOC_Mem_clear());
    NOT(VELOC_Checkpoint("a", 9));
    OK(VELOC_Mem_protect(3, NULL, 0, sizeof(double)));
    OK(VELOC_Checkpoint("a", 10));
    OK(VELOC_Restart("a", 10));
}

static void files(void) {
    char path[VELOC_MAX_NAME], content[6] = {0};
    NOT(VELOC_Route_file("x", path));
    OK(VELOC_Checkpoint_begin("file", 1));
    OK(VELOC_Route_file("x", path));
    FILE *file = fopen(path, "w");
    EXPECT(file != NULL && fputs("first", file) >= 0 && fclose(file) == 0);
    OK(VELOC_Checkpoint_end(1));
    OK(VELOC_Checkpoint_wait());
    EXPECT(access(path, F_OK) != 0);

    OK(VELOC_Checkpoint_begin("file", 2));
    OK(VELOC_Route_file("x", path));
    NOT(VELOC_Checkpoint_mem());
    NOT(VELOC_Checkpoint_end(1));
    OK(VELOC_Checkpoint_begin("file", 3));
    OK(VELOC_Route_file("x", path));
    file = fopen(path, "w");
    EXPECT(file != NULL && fputs("bad", file) >= 0 && fclose(file) == 0);
    OK(VELOC_Checkpoint_end(0));
    OK(VELOC_Cleanup("file"));
    EXPECT(access(path, F_OK) != 0);
    EXPECT(VELOC_Restart_test("file", 0) == 1);

    OK(VELOC_Restart_begin("file", 1));
    OK(VELOC_Route_file("x", path));
    file = fopen(path, "r");
    EXPECT(file != NULL && fread(content, 1, 6, file) == 5 && fclose(file) == 0);
    EXPECT(strcmp(content, "first") == 0);
    OK(VELOC_Restart_end(1));
    OK(VELOC_Restart_begin("a", 1));
    NOT(VELOC_Route_file("x", path));
    OK(VELOC_Restart_end(1));
    OK(VELOC_Cleanup("file"));
    EXPECT(access(path, F_OK) != 0);
}

int main(int argc, char **argv) {
    EXPECT(argc == 2);
    NOT(VELOC_Mem_protect(0, numbers, 1, 1));
    NOT(VELOC_Finalize(1));
    NOT(VELOC_Init_single(4, "/nowhere/veloc.cfg"));
    OK(VELOC_Init_single(4, argv[1]));
    OK(VELOC_Init_single(4, argv[1]));
    regions();
    some();
    groups();
    files();
    OK(VELOC_Finalize(1));
    NOT(VELOC_Finalize(1));
    NOT(VELOC_Checkpoint("a", 1));
    printf("done\n");
    return 0;
}
