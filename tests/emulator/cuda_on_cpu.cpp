// The part of cuda_on_cpu.h that does not depend on a program's types, compiled once per host: blocks, their fibers, and their wait conditions.
#undef _FORTIFY_SOURCE  // its longjmp knows one stack
#include <setjmp.h>
#include <ucontext.h>

#include "cuda_on_cpu.h"

namespace emulated {
constexpr size_t STACK = 256 << 10;
struct Copy { float* into; const float* from; int count; };  // from nowhere: zeros
struct Fiber {
    jmp_buf place;                  // where it goes on: no system call, as swapcontext makes two for each turn
    std::unique_ptr<char[]> stack;  // not written to before it is used; the fiber stays on it from one block to the next
    Waiting waiting = DONE;
    int turn = 0;  // exchanges of its warp so far
    std::vector<std::vector<Copy>> copies = std::vector<std::vector<Copy>>(1);  // on their way, a group each; the last one is not committed
};
int now = 0, number = 0;
int come[16] = {}, let_go[16] = {};
dim3 threads, grid, block_index;
static std::vector<Fiber> fibers;
static std::vector<Lane> lanes[2];
static std::vector<char> dynamic;
static jmp_buf home;
static Body body;
static bool cooperative = false, spinning = false;  // whether other blocks run meanwhile; whether a fiber ran only to look again
static int looked = 0;                              // fibers that ran only to look again, since one did more

void meet(Waiting what) {
    fibers[now].waiting = what;
    if (!_setjmp(fibers[now].place)) _longjmp(home, 1);
}
static void enter() {
    for (;;) {
        body.call(body.of);
        meet(DONE);
    }
}
static void go_on(Fiber& fiber) {
    if (_setjmp(home)) return;
    if (fiber.stack) _longjmp(fiber.place, 1);
    fiber.stack.reset(new char[STACK]);
    ucontext_t first;
    getcontext(&first);
    first.uc_stack.ss_sp = fiber.stack.get();
    first.uc_stack.ss_size = STACK;
    first.uc_link = nullptr;
    makecontext(&first, enter, 0);
    setcontext(&first);
}
static void begin(int count) {
    for (int at = 0; at < count; ++at) fibers[at].waiting = RUNS, fibers[at].turn = 0, fibers[at].copies.assign(1, {});
}
[[noreturn]] static void stuck(const char* who) {
    std::fprintf(stderr, "emulated: %s wait for each other in different places\n", who);
    std::abort();
}
// Runs every live fiber of a block until it waits. A warp continues when all its live lanes wait for the warp, and a block likewise. Returns false
// when all are done.
static bool turn(int count) {
    bool ran = false;
    for (now = 0; now < count; ++now) {
        if (fibers[now].waiting != RUNS) continue;
        spinning = false;
        go_on(fibers[now]);
        looked = spinning ? looked + 1 : 0;
        ran = true;
    }
    int live = 0, at_barrier = 0;
    for (int warp = 0; warp < count; warp += 32) {
        int alive = 0, exchanging = 0;
        for (int at = warp; at < std::min(warp + 32, count); ++at) {
            alive += fibers[at].waiting != DONE;
            exchanging += fibers[at].waiting == WARP;
            at_barrier += fibers[at].waiting == BLOCK;
        }
        live += alive;
        if (alive && exchanging == alive)
            for (int at = warp; at < std::min(warp + 32, count); ++at)
                if (fibers[at].waiting == WARP) fibers[at].waiting = RUNS, ran = true;
    }
    if (live && at_barrier == live)
        for (int at = 0; at < count; ++at)
            if (fibers[at].waiting == BLOCK) fibers[at].waiting = RUNS, ran = true;
    if (live && !ran) stuck("threads of a block");
    return live;
}
static void block(int count) {
    begin(count);
    while (turn(count)) {}
}
// A fiber polls for a value that another block still has to write.
void look_again() {
    if (!cooperative) stuck("blocks, without a cooperative launch,");
    spinning = true;
    meet(RUNS);
}
void run(dim3 blocks, dim3 count, size_t shared, Body given, bool threads_meet) {
    threads = count, grid = blocks, body = given;
    const int total = count.x * count.y * count.z;
    if ((int)fibers.size() < total) fibers.resize(total);
    for (auto& half : lanes) half.resize((total + 31) / 32 * 32);
    for (unsigned z = 0; z < blocks.z; ++z)
        for (unsigned y = 0; y < blocks.y; ++y)
            for (unsigned x = 0; x < blocks.x; ++x) {
                block_index = dim3(x, y, z);
                dynamic.assign(shared + 1024, (char)0xA5);  // as undefined as the real one
                if (threads_meet) block(total);
                else for (now = 0; now < total; ++now) body.call(body.of);
            }
}
// All blocks at once. The meaning of `fibers` and `lanes` depends on the block whose turn it is.
struct Live { std::vector<Fiber> fibers; std::vector<Lane> lanes[2]; std::vector<char> dynamic; dim3 at; bool live = true; };
static void some_together(dim3 blocks, dim3 count, size_t shared, Body given, unsigned first, unsigned together) {
    threads = count, grid = blocks, body = given, cooperative = true, looked = 0;
    const int total = count.x * count.y * count.z;
    std::vector<Live> all(together);
    const auto enter_block = [&](Live& one) {
        fibers.swap(one.fibers), dynamic.swap(one.dynamic), lanes[0].swap(one.lanes[0]), lanes[1].swap(one.lanes[1]);
        block_index = one.at, number = (int)(&one - all.data());
    };
    for (unsigned at = 0; at < all.size(); ++at) {
        Live& one = all[at];
        const unsigned flat = first + at;
        one.at = dim3(flat % blocks.x, flat / blocks.x % blocks.y, flat / blocks.x / blocks.y);
        one.fibers.resize(total);
        for (auto& half : one.lanes) half.resize((total + 31) / 32 * 32);
        one.dynamic.assign(shared + 1024, (char)0xA5);
        enter_block(one), begin(total), enter_block(one);
    }
    for (size_t left = all.size(); left;)
        for (Live& one : all) {
            if (!one.live) continue;
            enter_block(one);
            one.live = turn(total);
            enter_block(one);
            left -= !one.live;
            if (looked > 4 * (int)all.size() * total) stuck("blocks");
        }
    cooperative = false;
}
void run_together(dim3 blocks, dim3 count, size_t shared, Body given) {
    some_together(blocks, count, shared, given, 0, blocks.x * blocks.y * blocks.z);
}
static int arrived = 0, met = 0, members = 0;
void run_clusters(int together, dim3 blocks, dim3 count, size_t shared, Body given) {
    if (blocks.x % together) stuck("clusters that the grid does not hold whole");
    members = together * count.x * count.y * count.z;
    for (unsigned first = 0; first < blocks.x; first += together) some_together(blocks, count, shared, given, first, together);
}
void cluster_meets() {
    const int before = met;
    if (++arrived == members) arrived = 0, ++met;
    while (met == before) look_again();
}
char* shared_memory() { return (char*)(((uintptr_t)dynamic.data() + 1023) & ~(uintptr_t)1023); }
const Lane* exchange(const Lane& mine) {
    auto& half = lanes[fibers[now].turn++ % 2];
    half[now] = mine;
    meet(WARP);
    return &half[now / 32 * 32];
}
static void made(const Copy& copy) {
    for (int at = 0; at < copy.count; ++at) copy.into[at] = copy.from ? copy.from[at] : 0.0f;
}
void copy(float* into, const float* from, int count) {
    if (now % 2) fibers[now].copies.back().push_back({into, from, count});
    else made({into, from, count});
}
void commit() { fibers[now].copies.emplace_back(); }
void wait(int left) {
    auto& copies = fibers[now].copies;
    while ((int)copies.size() > left + 1) {
        for (const auto& copy : copies.front()) made(copy);
        copies.erase(copies.begin());
    }
}
}  // namespace emulated
