/* The clock of a timed call: loaded in a party, with the driver's functions looked up, before any stranger's source is.
 *
 * `stitch_prepare` comes first, outside any interval: it waits for the device, frees lines pinned in L2, and writes a scratch buffer over and over for
 * a while, so that every call finds an L2 without its data, a GPU that works in this process's context, and clocks that are up.
 * Then the judge writes the call's inputs and one byte, `stitch_inputs` writes the scratch buffer once more, `stitch_refreshed` answers, and on the
 * judge's second byte `stitch_go` returns with the clock started. The call runs. `stitch_done` waits for the whole
 * device, stops the clock and writes the nanoseconds as a little-endian i64. A device that failed is a negative number: minus the driver's code.
 * On the CPU there is nothing to wait for: a call has returned when its work is done. There it waits for one byte more, by which the judge says that it
 * has read its own clock: threads that spin on every processor would keep the judge waiting until the outputs are copied.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

typedef int (*driver_call)(void);
typedef int (*driver_set)(void *);
typedef int (*driver_fill)(uint64_t, unsigned, size_t);
typedef int (*driver_allocate)(uint64_t *, size_t);

static driver_call device_sync;
static driver_call reset_persisting;
static driver_set make_current;
static driver_fill fill;
static void *context;
static uint64_t scratch;
static size_t scratch_words;
static int64_t warm_ns;
static const int64_t spin_ns = 20 * 1000 * 1000;
static struct timespec began;

static int64_t nanoseconds(struct timespec from, struct timespec to) {
    return (int64_t)(to.tv_sec - from.tv_sec) * 1000000000LL + (to.tv_nsec - from.tv_nsec);
}

/* Looks up the driver; `current` is the primary context that torch uses, `flush_bytes` the size of the scratch buffer, `warm` how many nanoseconds
 * `stitch_prepare` keeps the GPU busy at least. 0, or -1 where the driver lacks a function or the memory. */
int stitch_use_cuda(void *current, size_t flush_bytes, int64_t warm) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!driver) return -1;
    device_sync = (driver_call)dlsym(driver, "cuCtxSynchronize");
    reset_persisting = (driver_call)dlsym(driver, "cuCtxResetPersistingL2Cache");
    make_current = (driver_set)dlsym(driver, "cuCtxSetCurrent");
    fill = (driver_fill)dlsym(driver, "cuMemsetD32_v2");
    driver_allocate allocate = (driver_allocate)dlsym(driver, "cuMemAlloc_v2");
    context = current;
    warm_ns = warm;
    if (!device_sync || !make_current || !fill || !allocate || make_current(context)) return -1;
    scratch_words = flush_bytes / 4;
    return scratch_words && allocate(&scratch, scratch_words * 4) ? -1 : 0;
}

int stitch_sync(void) {
    if (!device_sync) return 0;
    int code = make_current(context);
    return code ? code : device_sync();
}

void stitch_prepare(void) {
    struct timespec from, to;
    if (!device_sync || stitch_sync()) return;
    if (reset_persisting) reset_persisting();
    clock_gettime(CLOCK_MONOTONIC_RAW, &from);
    do {
        if (!scratch_words || fill(scratch, 0, scratch_words) || device_sync()) return;
        clock_gettime(CLOCK_MONOTONIC_RAW, &to);
    } while (nanoseconds(from, to) < warm_ns);
}

/* The judge's next byte, or -1 where it is gone. With a GPU this polls for `spin_ns` before it sleeps: a processor that slept has lost its speed and its
 * caches, and a call would be charged with waking it. (On the CPU device polling would take a processor from the judge.) */
static int next_byte(int fd) {
    unsigned char byte;
    ssize_t got = -1;
    struct timespec from, to;
    if (device_sync) {
        clock_gettime(CLOCK_MONOTONIC_RAW, &from);
        do {
            got = recv(fd, &byte, 1, MSG_DONTWAIT);
            clock_gettime(CLOCK_MONOTONIC_RAW, &to);
        } while (got < 0 && (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK) && nanoseconds(from, to) < spin_ns);
    }
    while (got < 0) {
        got = read(fd, &byte, 1);
        if (got < 0 && errno != EINTR) return -1;
    }
    return got == 1 ? byte : -1;
}

/* Waits until the judge has written the inputs ('F'). With a GPU the L2 is then written once more in this context, which also makes it the one that the
 * GPU works in; work of the program's own that still ran would delay the answer. 0, or -1 where the judge is gone. */
int stitch_inputs(int fd) {
    if (next_byte(fd) != 'F') return -1;
    if (device_sync && scratch_words && !fill(scratch, 0, scratch_words)) device_sync();
    return 0;
}

int stitch_refreshed(int fd) {
    unsigned char byte = 'f';
    ssize_t put;
    do {
        put = write(fd, &byte, 1);
    } while (put < 0 && errno == EINTR);
    return put == 1 ? 0 : -1;
}

/* 0 with the clock started, or -1 where the judge is gone. */
int stitch_go(int fd) {
    if (next_byte(fd) != 'G') return -1;
    clock_gettime(CLOCK_MONOTONIC_RAW, &began);
    return 0;
}

int64_t stitch_done(int fd) {
    struct timespec ended;
    unsigned char wire[8];
    size_t sent = 0;
    int code = stitch_sync();
    clock_gettime(CLOCK_MONOTONIC_RAW, &ended);
    int64_t value = code ? -(int64_t)code : nanoseconds(began, ended);
    for (int i = 0; i < 8; i++) wire[i] = (unsigned char)((uint64_t)value >> (8 * i));
    while (sent < sizeof wire) {
        ssize_t put = write(fd, wire + sent, sizeof wire - sent);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) break;
        sent += (size_t)put;
    }
    if (!device_sync) next_byte(fd);
    return value;
}
