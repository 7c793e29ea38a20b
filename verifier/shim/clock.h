/* Declarations shared by the clock of a single call (`clock.c`) and that of a series of calls (`series.c`). */
#ifndef STITCH_CLOCK_H
#define STITCH_CLOCK_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

#pragma GCC visibility push(hidden)

int64_t now_ns(void);  /* CLOCK_MONOTONIC_RAW */

/* The driver's functions if a GPU is used; all null on the CPU. */
struct driver {
    int (*sync)(void);
    int (*reset_persisting)(void);
    int (*set_current)(void *);
    int (*fill)(uint64_t, unsigned, size_t);
    int (*allocate)(uint64_t *, size_t);
    int (*load_module)(void **, const void *);
    int (*get_function)(void **, void *, const char *);
    int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
};
extern struct driver driver;
extern void *context;         /* the primary one, which torch uses */
extern uint64_t scratch;      /* device memory, at least twice the L2 */
extern size_t scratch_words;  /* of 4 bytes */

void load_masks(void);   /* if the driver refuses the kernel, `stitch_has_masks` returns 0 */
int flush_device(void);  /* writes the scratch buffer and waits; returns 0 or the driver's code */

#pragma GCC visibility pop

int stitch_sync(void);

#endif
