/* The clock of a timed call. A party loads it, and it looks up the driver's functions, before any stranger's source is loaded.
 *
 * `stitch_prepare` comes first, outside any interval: it waits for the device, frees lines pinned in L2, and writes a scratch buffer repeatedly for a
 * while. Every call therefore finds an L2 without its data, a GPU that works in this process's context, and clocks at full speed. Then the judge
 * writes the call's inputs and one byte, `stitch_inputs` writes the scratch buffer once more, `stitch_refreshed` answers, and on the judge's second
 * byte `stitch_go` returns with the clock started. The call runs. `stitch_done` waits for the whole device, stops the clock and writes the
 * nanoseconds as a little-endian i64. If the device failed, it writes a negative number instead: minus the driver's code. On the CPU there is no
 * device to wait for: a call's work is done when it returns. There it waits for one more byte, which the judge sends once it has read its own clock.
 * Otherwise, threads that spin on every processor would keep the judge waiting until the outputs are copied.
 *
 * Series of calls go through `series.c`. */
#include "clock.h"

#include <dlfcn.h>
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

struct driver driver;
void *context;
uint64_t scratch;
size_t scratch_words;
static int64_t warm_ns;
static const int64_t spin_ns = 20 * 1000 * 1000;
static int64_t began;

int64_t now_ns(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC_RAW, &at);
    return (int64_t)at.tv_sec * 1000000000LL + at.tv_nsec;
}

/* Looks up the driver. `current` is the primary context that torch uses, `flush_bytes` is the size of the scratch buffer (0: this process times
 * nothing and only masks inputs), and `warm` is the minimum number of nanoseconds for which `stitch_prepare` keeps the GPU busy. Returns 0, or -1 if
 * the driver lacks a function or the memory. */
int stitch_use_cuda(void *current, size_t flush_bytes, int64_t warm) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) return -1;
    *(void **)&driver.sync = dlsym(library, "cuCtxSynchronize");
    *(void **)&driver.reset_persisting = dlsym(library, "cuCtxResetPersistingL2Cache");
    *(void **)&driver.set_current = dlsym(library, "cuCtxSetCurrent");
    *(void **)&driver.fill = dlsym(library, "cuMemsetD32_v2");
    *(void **)&driver.allocate = dlsym(library, "cuMemAlloc_v2");
    *(void **)&driver.load_module = dlsym(library, "cuModuleLoadData");
    *(void **)&driver.get_function = dlsym(library, "cuModuleGetFunction");
    *(void **)&driver.launch = dlsym(library, "cuLaunchKernel");
    context = current;
    warm_ns = warm;
    if (!driver.sync || !driver.set_current || !driver.fill || !driver.allocate || driver.set_current(context)) return -1;
    load_masks();
    scratch_words = flush_bytes / 4;
    return scratch_words && driver.allocate(&scratch, scratch_words * 4) ? -1 : 0;
}

int stitch_sync(void) {
    if (!driver.sync) return 0;
    int code = driver.set_current(context);
    return code ? code : driver.sync();
}

int flush_device(void) {
    int code = scratch_words ? driver.fill(scratch, 0, scratch_words) : 0;
    return code ? code : driver.sync();
}

void stitch_prepare(void) {
    if (!driver.sync || stitch_sync()) return;
    if (driver.reset_persisting) driver.reset_persisting();
    int64_t from = now_ns();
    do {
        if (!scratch_words || flush_device()) return;
    } while (now_ns() - from < warm_ns);
}

/* Returns the judge's next byte, or -1 if the judge is gone. With a GPU this polls for `spin_ns` before it sleeps: a processor that slept has lost
 * its speed and its caches, and a call would be charged for waking it. (On the CPU device, polling would take a processor from the judge.) */
static int next_byte(int fd) {
    unsigned char byte;
    ssize_t got = -1;
    if (driver.sync) {
        int64_t from = now_ns();
        do {
            got = recv(fd, &byte, 1, MSG_DONTWAIT);
        } while (got < 0 && (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK) && now_ns() - from < spin_ns);
    }
    while (got < 0) {
        got = read(fd, &byte, 1);
        if (got < 0 && errno != EINTR) return -1;
    }
    return got == 1 ? byte : -1;
}

/* Waits until the judge has written the inputs ('F'). With a GPU the L2 is then written once more in this context, which also switches the GPU to
 * it; work of the program that is still running would delay the answer. Returns 0, or -1 if the judge is gone. */
int stitch_inputs(int fd) {
    if (next_byte(fd) != 'F') return -1;
    if (driver.sync && scratch_words) flush_device();
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

/* Starts the clock and returns 0, or -1 if the judge is gone. */
int stitch_go(int fd) {
    if (next_byte(fd) != 'G') return -1;
    began = now_ns();
    return 0;
}

int64_t stitch_done(int fd) {
    unsigned char wire[8];
    size_t sent = 0;
    int code = stitch_sync();
    int64_t ended = now_ns();
    int64_t value = code ? -(int64_t)code : ended - began;
    for (int i = 0; i < 8; i++) wire[i] = (unsigned char)((uint64_t)value >> (8 * i));
    while (sent < sizeof wire) {
        ssize_t put = write(fd, wire + sent, sizeof wire - sent);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) break;
        sent += (size_t)put;
    }
    if (!driver.sync) next_byte(fd);
    return value;
}
