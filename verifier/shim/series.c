/* The clock of a series of consecutive calls without a message between them: judge and party synchronise through a page that both map.
 *
 * The inputs of all calls lie masked in the party's memory before the first one begins. For call c, numbered from 0:
 *
 *   party: 4c+1  waits with nothing running       judge: 4c+1  releases the key of this call's inputs
 *   party: 4c+2  inputs unmasked, caches flushed  judge: 4c+2  go
 *   party: 4c+3  the call has ended, device and all  judge: 4c+3  has read its clock
 *   party: 4c+4  outputs copied                   judge: 4c+4  has read its clock; then the next call
 *
 * Therefore, no call can do another's work: its inputs become readable only once the judge has seen that the previous call has ended and its outputs
 * have been copied. Lead-in calls look the same as counted ones, and the party is not told which is which.
 *
 * With a GPU both sides spin, and the judge's own timestamps give the time. On the CPU device they sleep on a futex, since a judge that spins takes a
 * processor from the program; there the party's clock is the finer one, and the judge's clock confirms it. A flush takes milliseconds there, and its
 * time differs between two processes by more than a short call takes. Therefore the judge reads its clock when the inputs are unmasked, before the
 * flush begins:
 * what a program does earlier is charged, and the flush, which is native code of ours, is not. */
#define _GNU_SOURCE
#include "clock.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE_BYTES = 4096, LINE = 64, STAMPS = 8 };
enum outcome { ENDED = 0, SOCKET = 1, TIMED_OUT = 2, OUT_OF_TURN = 3 };
static const uint32_t ABORTED = 0xFFFFFFFFu;
static const int64_t SPIN_NS = 20 * 1000 * 1000, LOOK_NS = 1000 * 1000;

/* Puts every word on a cache line of its own. */
struct word {
    _Atomic uint32_t value;
    _Atomic uint32_t awaited; /* the other side may sleep until it changes */
    char rest[LINE - 8];
};
enum { UNMASKED = 0x40000000 }; /* flag in a step: the inputs are unmasked, and the flush has not begun (CPU device) */
struct page {
    struct word judge, party;
    uint64_t key[2];
    char rest[LINE - 16];
    int64_t inner; /* ns of the last call by the party's clock, or minus the driver's code */
    char last[LINE - 16];
    uint32_t warm; /* with the key: the caches of this call are not flushed */
    uint32_t apart; /* with the key: the party flushes its caches only after the judge has seen the inputs unmasked */
    _Atomic uint32_t begun; /* 4c+2 once call c runs, because a party that slept takes a while to wake up after the go. Nothing depends on it. */
};

static void put(struct word *word, uint32_t value) {
    atomic_store(&word->value, value);
    if (atomic_load(&word->awaited)) syscall(SYS_futex, &word->value, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void nap(struct word *word, uint32_t seen, int64_t ns) {
    struct timespec most = {0, ns};
    atomic_store(&word->awaited, 1);
    syscall(SYS_futex, &word->value, FUTEX_WAIT, seen, &most, NULL, 0);
    atomic_store(&word->awaited, 0);
}

static inline void breathe(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Waits until `word` is `wanted`. Any value other than this and `before` means that a party is out of turn or has aborted. */
static enum outcome await(struct word *word, uint32_t before, uint32_t wanted, int fd, int spins, int64_t deadline) {
    int64_t from = 0, look = 0;
    for (unsigned turn = 0;; turn++) {
        uint32_t seen = atomic_load_explicit(&word->value, memory_order_acquire);
        if (seen == wanted) return ENDED;
        if (seen == ABORTED) return SOCKET;
        if (seen != before) return OUT_OF_TURN;
        if (spins && turn % 64) {
            breathe();
            continue;
        }
        int64_t now = now_ns();
        if (!from) from = look = now;
        if (now - look > LOOK_NS || !spins) {
            struct pollfd peer = {fd, POLLIN, 0};
            look = now;
            if (poll(&peer, 1, 0) > 0) /* a message out of turn, the end of the other side, or the answer after the last step */
                return atomic_load_explicit(&word->value, memory_order_acquire) == wanted ? ENDED : SOCKET;
            if (deadline && now > deadline) return TIMED_OUT;
        }
        if (!spins || now - from > SPIN_NS) nap(word, seen, spins ? 50 * 1000 : 20 * 1000 * 1000);
    }
}

/* Masks: a stream of 64-bit words under a 128-bit key, made of two rounds of splitmix64's finaliser (Steele, Lea, Flood, 2014), XORed in place. */

#define GOLDEN 0x9E3779B97F4A7C15ull
static inline uint64_t mixed(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

#define MIX "shr.u64 %t, %z, 30; xor.b64 %z, %z, %t; mul.lo.u64 %z, %z, %m1; shr.u64 %t, %z, 27; xor.b64 %z, %z, %t; mul.lo.u64 %z, %z, %m2;" \
            "shr.u64 %t, %z, 31; xor.b64 %z, %z, %t;\n"
static const char MASK[] =
    ".version 7.0\n.target sm_75\n.address_size 64\n"
    ".visible .entry stitch_mask(.param .u64 place, .param .u64 words, .param .u64 first, .param .u64 second) {\n"
    ".reg .pred %end; .reg .b32 %block, %threads, %thread, %blocks;\n"
    ".reg .b64 %p, %n, %a, %b, %i, %step, %z, %t, %m1, %m2, %g, %at, %x;\n"
    "ld.param.u64 %p, [place]; ld.param.u64 %n, [words]; ld.param.u64 %a, [first]; ld.param.u64 %b, [second];\n"
    "cvta.to.global.u64 %p, %p;\n"
    "mov.u64 %m1, 0xBF58476D1CE4E5B9; mov.u64 %m2, 0x94D049BB133111EB; mov.u64 %g, 0x9E3779B97F4A7C15;\n"
    "mov.u32 %block, %ctaid.x; mov.u32 %threads, %ntid.x; mov.u32 %thread, %tid.x; mov.u32 %blocks, %nctaid.x;\n"
    "mul.wide.u32 %i, %block, %threads; cvt.u64.u32 %t, %thread; add.u64 %i, %i, %t; mul.wide.u32 %step, %blocks, %threads;\n"
    "NEXT:\n"
    "setp.ge.u64 %end, %i, %n;\n"
    "@%end bra DONE;\n"
    "mul.lo.u64 %z, %i, %g; add.u64 %z, %z, %a;\n" MIX
    "xor.b64 %z, %z, %b;\n" MIX
    "shl.b64 %at, %i, 3; add.u64 %at, %at, %p; ld.global.u64 %x, [%at]; xor.b64 %x, %x, %z; st.global.u64 [%at], %x;\n"
    "add.u64 %i, %i, %step;\n"
    "bra NEXT;\n"
    "DONE:\n"
    "ret;\n"
    "}\n";
static void *mask_kernel;

void load_masks(void) {
    void *module = NULL;
    if (!driver.load_module || !driver.get_function || !driver.launch) return;
    if (driver.load_module(&module, MASK) || driver.get_function(&mask_kernel, module, "stitch_mask")) mask_kernel = NULL;
}

/* Returns whether inputs can be masked here: a driver without its PTX compiler cannot do it. */
int stitch_has_masks(void) { return !driver.sync || mask_kernel; }

/* The OpenMP threads of torch itself, called natively. No operator is involved, so a program cannot inject its own code. */

static void (*gomp_parallel)(void (*)(void *), void *, unsigned, unsigned);
static int (*gomp_number)(void);
static unsigned workers = 1;

static int find_gomp(struct dl_phdr_info *info, size_t size, void *found) {
    (void)size;
    if (!info->dlpi_name || !strstr(info->dlpi_name, "libgomp")) return 0;
    void *library = dlopen(info->dlpi_name, RTLD_NOW | RTLD_NOLOAD);
    if (!library) return 0;
    *(void **)found = library;
    return strstr(info->dlpi_name, "torch") != NULL; /* prefers torch's own library */
}

/* Called once torch is loaded; `threads` is the number of threads that torch uses. */
void stitch_use_threads(unsigned threads) {
    void *library = NULL;
    dl_iterate_phdr(find_gomp, &library);
    if (!library) return;
    *(void **)&gomp_parallel = dlsym(library, "GOMP_parallel");
    *(void **)&gomp_number = dlsym(library, "omp_get_thread_num");
    workers = gomp_parallel && gomp_number && threads > 1 ? threads : 1;
}

struct work {
    void (*part)(struct work *, size_t, size_t);
    unsigned char *place;
    size_t count;
    uint64_t key[2];
    int64_t until;
};

static void share(void *data) {
    struct work *work = data;
    size_t number = (size_t)gomp_number(), each = (work->count + workers - 1) / workers;
    size_t from = number * each, to = from + each < work->count ? from + each : work->count;
    if (from < to) work->part(work, from, to);
}

static void shared(struct work *work) {
    if (workers > 1)
        gomp_parallel(share, work, workers, 0);
    else
        work->part(work, 0, work->count);
}

static void mask_words(struct work *work, size_t from, size_t to) {
    uint64_t *words = (uint64_t *)work->place;
    for (size_t i = from; i < to; i++) words[i] ^= mixed(mixed(work->key[0] + i * GOLDEN) ^ work->key[1]);
}

static void touch_lines(struct work *work, size_t from, size_t to) {
    volatile unsigned char *lines = work->place;
    for (size_t i = from; i < to; i++) lines[i * LINE] += 1;
}

static void spin_until(struct work *work, size_t from, size_t to) {
    (void)from, (void)to;
    while (now_ns() < work->until) breathe();
}

/* Masks or unmasks `nbytes` (a multiple of 8) at `place`, on the device if there is one. Returns 0, or the driver's code. */
int stitch_mask(uint64_t place, size_t nbytes, uint64_t first, uint64_t second) {
    uint64_t words = nbytes / 8;
    if (!words) return 0;
    if (driver.sync) {
        void *arguments[] = {&place, &words, &first, &second};
        uint64_t blocks = (words + 255) / 256;
        return driver.launch(mask_kernel, blocks < 2048 ? (unsigned)blocks : 2048, 1, 1, 256, 1, 1, 0, NULL, arguments, NULL);
    }
    struct work work = {mask_words, (unsigned char *)(uintptr_t)place, words, {first, second}, 0};
    shared(&work);
    return 0;
}

static unsigned char *host_scratch;
static size_t host_scratch_bytes;

/* Allocates the buffer that flushes a CPU's caches. Returns 0, or -1 if there is no memory for it. */
int stitch_use_flush(size_t nbytes) {
    void *place = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (place == MAP_FAILED) return -1;
    host_scratch = place;
    host_scratch_bytes = nbytes;
    return 0;
}

/* Keeps all processors busy for `ns`. A processor that slept, especially a virtual one, takes up to 8 ms to wake up, and a call would be charged for
 * that. */
void stitch_awake(int64_t ns) {
    struct work work = {spin_until, NULL, workers, {0, 0}, now_ns() + ns};
    shared(&work);
}

/* The party's half */

static struct page *mine;
static uint32_t at;  /* the step before the current call */
static int socket_of_judge;
static int64_t went;

/* Maps the page that the judge shares through a descriptor. The caller closes the descriptor. Returns 0, or -1. */
int stitch_page(int descriptor) {
    void *place = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (place == MAP_FAILED) return -1;
    if (mine) munmap(mine, PAGE_BYTES);
    mine = place;
    return 0;
}

/* Waits until the inputs of call `number` at `place` may be read, unmasks them, flushes the caches, and returns on the judge's go with the clock
 * started. Returns 0, a driver's code, or -1 if the judge is gone. */
int stitch_await(int fd, uint32_t number, uint64_t place, size_t nbytes) {
    int code = stitch_sync(), spins = driver.sync != NULL;
    if (code) return code;
    at = 4 * number;
    socket_of_judge = fd;
    if (at && await(&mine->judge, at - 1, at, fd, spins, 0)) return -1; /* the judge has seen the copy of the previous call's outputs */
    put(&mine->party, at + 1);
    if (await(&mine->judge, at, at + 1, fd, spins, 0)) return -1;
    code = stitch_mask(place, nbytes, mine->key[0], mine->key[1]);
    if (!code && driver.sync) code = mine->warm ? stitch_sync() : flush_device();
    if (code) return code;
    uint32_t before = at + 1;
    if (mine->apart) {
        before |= UNMASKED;
        put(&mine->party, before);
        if (await(&mine->judge, at + 1, before, fd, spins, 0)) return -1;
    }
    if (!driver.sync && host_scratch && !mine->warm) {
        struct work work = {touch_lines, host_scratch, host_scratch_bytes / LINE, {0, 0}, 0};
        shared(&work);
    }
    put(&mine->party, at + 2);
    if (await(&mine->judge, before, at + 2, fd, spins, 0)) return -1;
    atomic_store_explicit(&mine->begun, at + 2, memory_order_relaxed);
    went = now_ns();
    return 0;
}

/* Waits for the whole device and stops the clock. Returns nanoseconds, or minus the driver's code. */
int64_t stitch_ended(void) {
    int code = stitch_sync();
    int64_t ended = now_ns();
    mine->inner = code ? -(int64_t)code : ended - went;
    put(&mine->party, at + 3);
    await(&mine->judge, at + 2, at + 3, socket_of_judge, driver.sync != NULL, 0); /* the judge has seen the end, so it cannot miss a step */
    return mine->inner;
}

/* Tells the judge that the outputs are in the place from which it reads them. */
void stitch_copied(void) { put(&mine->party, at + 4); }

/* Ends the series; the next message says why. */
void stitch_abort(void) {
    if (mine) put(&mine->party, ABORTED);
}

/* The judge's half */

/* Reads how long each thread has been ready to run without a processor, in ns, from its open file (/proc/PID/task/TID/schedstat). */
static void queued(const int *threads, int count, int64_t *waited) {
    for (int i = 0; i < count; i++) {
        char text[96];
        ssize_t got = pread(threads[i], text, sizeof text - 1, 0);
        if (got <= 0) continue; /* it has ended */
        text[got] = 0;
        char *second = strchr(text, ' ');
        if (second) waited[i] = strtoll(second, NULL, 10);
    }
}

/* Returns the longest of the times that the threads have waited since `before`. Threads wait side by side, so a call is not delayed by the sum. */
static int64_t longest(const int *threads, int count, const int64_t *before, int64_t *after) {
    int64_t found = 0;
    memcpy(after, before, count * sizeof *after);
    queued(threads, count, after);
    for (int i = 0; i < count; i++)
        if (after[i] - before[i] > found) found = after[i] - before[i];
    return found;
}

/* Leads a party through `count` calls. `keys`: two words per call. `threads`: open files in which the kernel reports how long the party's threads
 * wait for a processor. `stamps`: eight values per call, in ns (the party waits, key, unmasked, go, ended, copied, the call by the party's clock, and
 * the longest time that one of its threads waited for a processor meanwhile). `spins`: 1 if a processor can be spared for spinning. `bell` is an
 * event that is signalled before each call whose bit is set in `rung`, while the party unmasks its inputs. Caches are not flushed before each call
 * whose bit is set in `warm`. Both name the first 64 calls. */
int stitch_lead(void *shared_page, int fd, uint32_t count, const uint64_t *keys, const int *threads, int thread_count, int64_t *stamps, int spins,
                int64_t limit_ns, int bell, uint64_t rung, uint64_t warm) {
    struct page *page = shared_page;
    int64_t deadline = now_ns() + limit_ns;
    enum outcome outcome;
    uint32_t last = 0;
    int64_t before[thread_count + 1], after[thread_count + 1];
    memset(before, 0, sizeof before);
    for (uint32_t call = 0; call < count; call++, stamps += STAMPS) {
        uint32_t step = 4 * call;
        if ((outcome = await(&page->party, last, step + 1, fd, spins, deadline))) return outcome;
        stamps[0] = now_ns();
        memcpy(page->key, keys + 2 * call, sizeof page->key);
        page->warm = call < 64 && warm >> call & 1;
        page->apart = !spins && !page->warm;
        if (call < 64 && rung >> call & 1) eventfd_write(bell, 1);
        stamps[1] = now_ns();
        put(&page->judge, step + 1);
        uint32_t unmasked = page->apart ? (step + 1) | UNMASKED : step + 2;
        if ((outcome = await(&page->party, step + 1, unmasked, fd, spins, deadline))) return outcome;
        stamps[2] = now_ns();
        if (unmasked != step + 2) {
            put(&page->judge, unmasked);
            if ((outcome = await(&page->party, unmasked, step + 2, fd, spins, deadline))) return outcome;
        }
        queued(threads, thread_count, before);
        stamps[3] = now_ns();
        put(&page->judge, step + 2);
        if ((outcome = await(&page->party, step + 2, step + 3, fd, spins, deadline))) return outcome;
        stamps[4] = now_ns();
        stamps[6] = page->inner;
        stamps[7] = longest(threads, thread_count, before, after);
        put(&page->judge, step + 3);
        if ((outcome = await(&page->party, step + 3, step + 4, fd, spins, deadline))) return outcome;
        stamps[5] = now_ns();
        put(&page->judge, step + 4);
        last = step + 4;
    }
    return ENDED;
}

/* Resets the page before each series. */
void stitch_begin(void *shared_page) { memset(shared_page, 0, PAGE_BYTES); }
