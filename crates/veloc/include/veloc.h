/* The functions of VELOC for C (https://github.com/ECP-VeloC/VELOC), as Strongroom's libveloc-client
 * offers them: a checkpoint is a version of a bucket, which the node's agent stores. Programs that were
 * compiled with VELOC's own header need not be compiled again.
 *
 * Functions return VELOC_SUCCESS, or VELOC_FAILURE after a line on the standard error that says why.
 *
 * Define VELOC_NO_MPI before this file to use it without MPI: then begin with VELOC_Init_single.
 */

#ifndef STRONGROOM_VELOC_H
#define STRONGROOM_VELOC_H

#include <stddef.h>
#include <string.h>

#ifndef VELOC_NO_MPI
#include <mpi.h>
#endif

#define VELOC_SUCCESS (0)
#define VELOC_FAILURE (-1)

/* Bytes that a routed path may have, with its zero. */
#define VELOC_MAX_NAME (1024)

/* Which regions a checkpoint is made of, or a restart fills: all, those in the array, the others. */
#define VELOC_CKPT_ALL (0)
#define VELOC_CKPT_SOME (1)
#define VELOC_CKPT_REST (2)
#define VELOC_RECOVER_ALL (0)
#define VELOC_RECOVER_SOME (1)
#define VELOC_RECOVER_REST (2)

#define VELOC_OBSERVE_CKPT_END (0)

#ifdef __cplusplus
extern "C" {
#endif

/* Begin and end. The bucket has the number of the rank, or `id`. The configuration has lines of
 * `key = value`; VELOC_KEY in the environment comes before them:
 *
 *   scratch             where routed files are
 *   mode                async (if it is not named), or sync: a checkpoint ends when it is committed
 *   strongroom_file     the name of the file whose buckets the ranks are; otherwise the program's name
 *   strongroom_socket   the agent's; otherwise STRONGROOM_RAM_SOCKET, or /run/strongroom/ram.sock
 *
 * Other keys of VELOC (persistent, max_versions, ...) mean nothing: what is stored is kept as the
 * repository says. `cfg_file` may be NULL or empty.
 *
 * VELOC_Finalize waits for all checkpoints if `drain` is not 0. */
#ifndef VELOC_NO_MPI
int VELOC_Init(MPI_Comm comm, const char *cfg_file);
#endif
int VELOC_Init_single(unsigned int id, const char *cfg_file);
int VELOC_Finalize(int drain);

/* Protect memory: `count` elements of `base_size` bytes each, under an id. A region with the same id is
 * replaced. Regions with a name belong to a group, and the checkpoint of that name is made of them
 * alone. */
int VELOC_Mem_protect(int id, void *ptr, size_t count, size_t base_size);
int VELOC_Region_protect(int id, void *ptr, size_t count, size_t base_size, const char *name);
int VELOC_Mem_unprotect(int id);
int VELOC_Mem_clear(void);
int VELOC_Region_unprotect(int id, const char *name);
int VELOC_Region_clear(const char *name);

/* Between begin and end, of a checkpoint or a restart: sets `routed` (VELOC_MAX_NAME bytes) to the path
 * of a file that the program writes or reads itself. A checkpoint is made of regions or of a file, not of
 * both. `original` is not used: VELOC would put a copy of the file there, here it is in the repository. */
int VELOC_Route_file(const char *original, char *routed);

/* Removes the routed files of a name from the scratch folder. What is stored stays stored. */
int VELOC_Cleanup(const char *name);

/* Make a checkpoint. When VELOC_Checkpoint_mem, _selective or, for files, _end returns, memory and file
 * may change again. With `success` 0, a file is dropped; regions are stored, as VELOC does it. The name
 * has letters, digits, `_` and `.`; the version is not negative and rises. */
int VELOC_Checkpoint_begin(const char *name, int version);
int VELOC_Checkpoint_selective(int mode, int *ids, int id_count);
int VELOC_Checkpoint_mem(void);
int VELOC_Checkpoint_end(int success);

/* Waits until all checkpoints are committed. */
int VELOC_Checkpoint_wait(void);
/* VELOC_SUCCESS if none is left to wait for, otherwise VELOC_FAILURE. */
int VELOC_Checkpoint_finished(void);
/* Wait, begin, mem and end. */
int VELOC_Checkpoint(const char *name, int version);

/* The newest version up to `version`, or of all if that is 0, that each rank has. VELOC_FAILURE if there
 * is none. All ranks call it. */
int VELOC_Restart_test(const char *name, int version);

/* Go back to a version. A region may be longer than what was stored. All ranks call
 * VELOC_Restart_begin. */
int VELOC_Restart_begin(const char *name, int version);
int VELOC_Recover_selective(int mode, int *ids, int id_count);
/* The bytes that a region had, or VELOC_FAILURE. */
int VELOC_Recover_size(int id);
int VELOC_Recover_mem(void);
int VELOC_Restart_end(int success);
/* Begin, mem and end. */
int VELOC_Restart(const char *name, int version);

#ifdef __cplusplus
}
#endif

#endif
