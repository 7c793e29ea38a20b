/* Inspects a running process from outside, through ptrace, and writes single instructions into it. Runs in the judge.
 *
 * `stitch_watch` runs in a separate thread while a call is being made. At random moments it stops each running thread of the process, reads its
 * position, and releases it at once, so that nothing stays attached between two moments. Waiting threads (a futex, a pipe) are not inspected. An
 * address in a library that works for its callers (`NEUTRAL`: libc, libm) counts for the nearest caller on the stack.
 *
 * `stitch_glance` does the same once in some calls of a series that is being timed, at an instant chosen in advance. */
#define _GNU_SOURCE
#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { UNKNOWN = 0, NEUTRAL = 3 };
enum { STACK = 16384, PATIENCE = 200000, THREADS = 512, SLICE_NS = 200000, POLL_NS = 30000, SPIN_NS = 300000, LATE_NS = 3000000 };

struct range {
    uint64_t begin, end;
    int64_t kind;
};

struct sample {
    int64_t moment;  /* the same for all samples of one moment */
    int64_t at;      /* ns by the judge's clock */
    uint64_t address; /* resolved to the caller if it was neutral */
    int64_t kind;
};

struct watch {
    int pid;
    const struct range *ranges;
    long count;
    int64_t mean_ns;
    uint64_t seed;
    struct sample *samples;
    long room;
    long taken;   /* out */
    long moments; /* out: moments at which the process was inspected */
    int error;    /* out: errno of the first refusal */
    volatile int ready, stop;
};

/* The clock that timestamps series. */
static int64_t now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC_RAW, &at);
    return (int64_t)at.tv_sec * 1000000000LL + at.tv_nsec;
}

static void rest(int64_t ns) {
    struct timespec time = {ns / 1000000000LL, ns % 1000000000LL};
    nanosleep(&time, NULL);
}

static double uniform(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return ((double)(*state >> 11) + 1.0) / 9007199254740994.0;
}

static int64_t kind_of(const struct watch *watch, uint64_t address) {
    long low = 0, high = watch->count;
    while (low < high) {
        long middle = (low + high) / 2;
        if (address >= watch->ranges[middle].end) low = middle + 1;
        else high = middle;
    }
    return low < watch->count && address >= watch->ranges[low].begin ? watch->ranges[low].kind : UNKNOWN;
}

/* Opens the file in which the kernel reports a thread's state. Returns its descriptor, or -1. */
static int state_file(int pid, int tid) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task/%d/stat", pid, tid);
    return open(path, O_RDONLY | O_CLOEXEC);
}

/* Returns the state of the thread behind such a file: 'R' if it is running, 0 if it is gone. */
static char state_in(int fd) {
    char text[512];
    ssize_t got = pread(fd, text, sizeof text - 1, 0);
    if (got <= 0) return 0;
    text[got] = 0;
    char *end = strrchr(text, ')');
    return end && end[1] == ' ' ? end[2] : 0;
}

static char state_of(int pid, int tid) {
    int fd = state_file(pid, tid);
    if (fd < 0) return 0;
    char state = state_in(fd);
    close(fd);
    return state;
}

/* Notes why a thread could not be inspected, unless it has ended in the meantime: a thread that ends causes the same errors as one that may not be
 * inspected. */
static void refused(struct watch *watch, int tid, int failure) {
    char state = state_of(watch->pid, tid);
    if (!watch->error && failure != ESRCH && state && state != 'Z' && state != 'X') watch->error = failure;
}

/* Asks a thread to stop. */
static int seize(int tid) {
    if (ptrace(PTRACE_SEIZE, tid, 0, 0)) return errno;
    return ptrace(PTRACE_INTERRUPT, tid, 0, 0) ? errno : 0;
}

/* Waits until the thread has stopped. Returns 0 and stores in `signal` the signal that the thread was about to receive, or returns an error. On a
 * busy host a thread stops only when it gets a processor, and only a stopped thread can be released. */
static int stopped(int tid, int *signal) {
    for (long waited = 0;; waited++) {
        int status = 0;
        pid_t got = waitpid(tid, &status, __WALL | WNOHANG | __WNOTHREAD);
        if (got == tid) {
            if (!WIFSTOPPED(status)) return ESRCH;
            *signal = status >> 16 ? 0 : WSTOPSIG(status);
            return 0;
        }
        if (got < 0 && errno != EINTR) return errno;
        if (waited > 2000) rest(waited > 20000 ? 1000000 : 20000);
        if (waited > PATIENCE) return ETIMEDOUT;
    }
}

static int registers(int tid, uint64_t *address, uint64_t *stack, uint64_t *link) {
    uint64_t values[64];
    struct iovec vector = {values, sizeof values};
    if (ptrace(PTRACE_GETREGSET, tid, (void *)(uintptr_t)NT_PRSTATUS, &vector)) return errno;
#if defined(__x86_64__)
    *address = values[16], *stack = values[19], *link = 0;
#elif defined(__aarch64__)
    *address = values[32], *stack = values[31], *link = values[30];
#else
    return ENOSYS;
#endif
    return 0;
}

/* Returns the nearest return address on the stack that is not in neutral code. */
static uint64_t caller(const struct watch *watch, uint64_t stack, uint64_t link, int64_t *kind) {
    uint64_t words[STACK / 8];
    struct iovec local = {words, sizeof words}, remote = {(void *)(uintptr_t)stack, sizeof words};
    int64_t found = kind_of(watch, link);
    if (link && found != UNKNOWN && found != NEUTRAL) return *kind = found, link;
    ssize_t got = process_vm_readv(watch->pid, &local, 1, &remote, 1, 0);
    if (got <= 0) { /* the stack ends before that */
        remote.iov_len = local.iov_len = 4096 - (stack & 4095);
        got = process_vm_readv(watch->pid, &local, 1, &remote, 1, 0);
    }
    for (long at = 0; at < got / 8; at++) {
        found = kind_of(watch, words[at]);
        if (found != UNKNOWN && found != NEUTRAL) return *kind = found, words[at];
    }
    return 0;
}

static void look(struct watch *watch, int tid) {
    int signal = 0, failure = stopped(tid, &signal);
    if (failure) {
        refused(watch, tid, failure);
        return;
    }
    struct sample *sample = &watch->samples[watch->taken];
    uint64_t stack = 0, link = 0, address = 0;
    failure = registers(tid, &address, &stack, &link);
    if (!failure && watch->taken < watch->room) {
        sample->moment = watch->moments;
        sample->at = now();
        sample->address = address;
        sample->kind = kind_of(watch, address);
        if (sample->kind == NEUTRAL) {
            uint64_t from = caller(watch, stack, link, &sample->kind);
            if (from) sample->address = from;
        }
        watch->taken++;
    } else if (failure) refused(watch, tid, failure);
    ptrace(PTRACE_DETACH, tid, 0, (void *)(intptr_t)signal);
}

/* Asks all running threads to stop, and only then waits for the first. */
static void look_at_all(struct watch *watch, const char *folder) {
    int held[THREADS];
    long count = 0;
    DIR *tasks = opendir(folder);
    if (!tasks) return;
    for (struct dirent *entry; (entry = readdir(tasks)) && count < THREADS;) {
        int tid = atoi(entry->d_name);
        if (tid <= 0 || state_of(watch->pid, tid) != 'R') continue;
        int failure = seize(tid);
        if (!failure) held[count++] = tid;
        else refused(watch, tid, failure);
    }
    closedir(tasks);
    for (long at = 0; at < count; at++) look(watch, held[at]);
    watch->moments++;
}

/* Inspects the process at random moments, `mean_ns` apart on average, until `stop`. It starts before the call, while the process is asleep, so that
 * no part of a short call is favoured. */
void stitch_watch(struct watch *watch) {
    char folder[64];
    uint64_t state = watch->seed | 1;
    snprintf(folder, sizeof folder, "/proc/%d/task", watch->pid);
    prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
    watch->ready = 1;
    while (!watch->stop && watch->taken < watch->room) {
        int64_t until = now() + (int64_t)(-log(uniform(&state)) * (double)watch->mean_ns), left;
        while (!watch->stop && (left = until - now()) > 0) rest(left < SLICE_NS ? left : SLICE_NS);
        if (!watch->stop) look_at_all(watch, folder);
    }
}

/* One call of a series (`verifier/shim/series.c`), and the instant at which to inspect it. */
struct glance {
    uint32_t go;      /* value of both words while the call runs */
    int64_t delay_ns; /* from the beginning of the call */
};

struct glances {
    const volatile uint32_t *begun, *party; /* in the page that judge and party share: the call that has begun, and the party's step */
    int bell;                               /* an event that is signalled shortly before each of the calls, and at the end of the series */
    const struct glance *calls;             /* in their order */
    long count;
};

/* Waits until the call has begun, or should have, and its instant has come. Returns 0 if the call has ended before that. While the party waits for its start signal, a short wait is spent spinning, because a sleeping thread would wake too late. */
static int comes(const struct watch *watch, const struct glances *glances, const struct glance *call) {
    int64_t ready = 0, left;
    while ((int32_t)(*glances->begun - call->go) < 0) {
        if (watch->stop) return 0;
        if (!ready && *glances->party == call->go) ready = now();
        if (ready && now() - ready > LATE_NS) break; /* nothing depends on what the party reports */
        if (!ready || call->delay_ns > SPIN_NS || now() - ready > SPIN_NS) rest(POLL_NS);
    }
    int64_t moment = now() + call->delay_ns;
    while (*glances->party == call->go && !watch->stop) {
        if ((left = moment - now()) <= 0) return 1;
        if (left > SPIN_NS) rest(left - SPIN_NS < SLICE_NS ? left - SPIN_NS : SLICE_NS);
    }
    return 0;
}

struct thread {
    int tid, file;
};

/* Opens the files of all threads in advance: when the instant comes, each of them costs one read. */
static long threads_of(const struct watch *watch, struct thread *threads) {
    char folder[64];
    long known = 0;
    snprintf(folder, sizeof folder, "/proc/%d/task", watch->pid);
    DIR *tasks = opendir(folder);
    if (!tasks) return 0;
    for (struct dirent *entry; (entry = readdir(tasks)) && known < THREADS;) {
        int tid = atoi(entry->d_name), file = tid > 0 ? state_file(watch->pid, tid) : -1;
        if (file >= 0) threads[known++] = (struct thread){tid, file};
    }
    closedir(tasks);
    return known;
}

/* Inspects the process once in each of these calls. Nothing happens before or after, so the other calls of the series are not disturbed. */
void stitch_glance(struct watch *watch, const struct glances *glances) {
    struct thread threads[THREADS];
    int held[THREADS];
    uint64_t rings;
    prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
    watch->ready = 1;
    for (long next = 0; next < glances->count; next++) {
        if (read(glances->bell, &rings, sizeof rings) != sizeof rings || watch->stop) return;
        long known = threads_of(watch, threads), count = 0;
        if (comes(watch, glances, &glances->calls[next])) {
            for (long at = 0; at < known; at++) {
                if (state_in(threads[at].file) != 'R') continue;
                int failure = seize(threads[at].tid);
                if (!failure) held[count++] = threads[at].tid;
                else refused(watch, threads[at].tid, failure);
            }
            for (long at = 0; at < count; at++) look(watch, held[at]);
            watch->moments++;
        }
        for (long at = 0; at < known; at++) close(threads[at].file);
    }
}

/* Writes `size` bytes, at most a word, into the code of a process whose thread `tid` is stopped in a system call. `before` receives the previous
 * word. Returns 0 or an error. */
int stitch_poke(int tid, uint64_t address, const unsigned char *bytes, long size, unsigned char *before) {
    int signal = 0, failure = seize(tid);
    if (!failure) failure = stopped(tid, &signal);
    if (failure) return failure;
    errno = 0;
    long word = ptrace(PTRACE_PEEKTEXT, tid, (void *)(uintptr_t)address, 0);
    failure = errno;
    if (!failure) {
        memcpy(before, &word, sizeof word);
        memcpy(&word, bytes, (size_t)(size > (long)sizeof word ? (long)sizeof word : size));
        if (ptrace(PTRACE_POKETEXT, tid, (void *)(uintptr_t)address, (void *)word)) failure = errno;
    }
    ptrace(PTRACE_DETACH, tid, 0, (void *)(intptr_t)signal);
    return failure;
}
