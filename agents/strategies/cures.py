"""Strategies that each fix one named fault. The diagnosis names the fault. If the fault is absent, the strategy is useless."""

from __future__ import annotations

from typing import Any

from agents.strategies.how_to import how_tos
from agents.strategies.strategy import Facts, Strategy

GUIDE = "NVIDIA CUDA C++ Best Practices Guide"


def no_reuse(facts: Facts) -> str | None:
    return "no data is used for more than one result, so there is nothing to keep" if facts.reuse is False else None


def _fp32_only(facts: Facts) -> str | None:
    return "fp32-strict needs more accuracy than a single tensor-core product gives" if facts.precision == "fp32-strict" else None


def _cure(name: str, fault: str, answers: tuple[str, ...], title: str, applies: str, expectation: str, forbidden: str, **more: Any) -> Strategy:
    return Strategy(
        name=name,
        title=title,
        answers=answers,
        when=lambda facts: fault in facts.faults,
        applies=applies,
        expectation=expectation,
        forbidden=forbidden,
        references=more.pop("references", (GUIDE,)),
        devices=("cpu", "cuda") if how_tos()[name].cpp else ("cuda",),
        cures=(fault,),
        only_cures=True,
        **more,
    )


CURES: tuple[Strategy, ...] = (
    _cure(
        "coalesce",
        "uncoalesced-access",
        ("memory",),
        "Have neighbouring lanes access neighbouring addresses",
        "a warp's loads or stores touch more sectors than their bytes require",
        "up to the share of wasted sectors: 2 to 8x on streaming kernels",
        "access patterns dictated by the data (gathers)",
    ),
    _cure(
        "pad-shared",
        "bank-conflicts",
        ("memory", "latency", "compute"),
        "Spread shared-memory accesses across the banks",
        "lanes of a warp read or write different words of shared memory in the same bank",
        "the cycles now lost to replays: 1.5 to 10x where shared memory is the bottleneck",
        "broadcasts, and accesses of 16 bytes per lane, which take four steps anyway",
    ),
    _cure(
        "relieve-registers",
        "register-spills",
        ("memory", "latency", "compute"),
        "Keep a thread's values in registers",
        "spills or dynamically indexed arrays go through local memory",
        "the local-memory traffic saved: 1.5 to 10x where it is the bottleneck",
        "more registers per thread where occupancy is already the limit",
    ),
    _cure(
        "raise-occupancy",
        "low-occupancy",
        ("occupancy", "latency", "memory"),
        "More resident warps",
        "shared memory, registers or the block size leave most of an SM's warp slots empty, and nothing hides the latency",
        "a speed-up of up to the ratio of the occupancy after the change to that before it, until a resource saturates",
        "kernels whose arithmetic or memory is already busy: matmul tiles want few, fat warps",
    ),
    _cure(
        "tile-reuse",
        "no-data-reuse",
        ("memory", "latency", "compute"),
        "Read each value once and share it",
        "many threads read the same data from global memory",
        "a speed-up by the ratio of bytes requested to distinct bytes: 2 to 10x for matmuls and filters without tiles",
        "data that each thread needs only once",
        veto=no_reuse,
        references=(GUIDE, "Volkov and Demmel, SC 2008"),
    ),
    _cure(
        "hoist",
        "redundant-arithmetic",
        ("compute",),
        "Compute invariant values once",
        "functions of the row or the column alone are recomputed for every element",
        "arithmetic reduced to what varies from element to element",
        "values that cost more to reload than to recompute",
    ),
    _cure(
        "cheap-math",
        "slow-functions",
        ("compute",),
        "Replace expensive functions with cheap ones of equal accuracy",
        "pow, division or trigonometry is used where products, reciprocals or identities give the same result",
        "10 to 100 fewer instructions per element",
        "approximations (__expf, -use_fast_math) that exceed the error bound",
    ),
    _cure(
        "cheap-indices",
        "integer-overhead",
        ("compute",),
        "Compute indices without division",
        "indices are decomposed by division and remainder for every element, especially in 64 bits",
        "about 70 instructions saved per 64-bit division, about 20 per 32-bit one",
        "addresses in tensors of more than 2^31 elements, which need 64 bits even though not every index does",
    ),
    _cure(
        "single-precision",
        "fp64-arithmetic",
        ("compute",),
        "Keep fp32 arithmetic in fp32",
        "literals without the f suffix, or double-precision functions, promote an expression to fp64",
        "2x to 30x, as fp64 runs at half the rate at best and its functions are long",
        "sums whose accuracy needs fp64",
    ),
    _cure(
        "tensor-cores",
        "no-tensor-cores",
        ("compute",),
        "Use tensor cores where the precision policy allows them",
        "a matmul of 16-bit or TF32 operands runs on the fp32 units",
        "4 to 15x for matmuls that fill the device",
        "fp32-strict, unless the product is split so that the error bound holds",
        veto=_fp32_only,
        references=("NVIDIA CUDA C++ Programming Guide, warp matrix functions",),
    ),
    _cure(
        "reorder-for-cache",
        "cache-thrashing",
        ("memory",),
        "Return to data while it is still in cache",
        "a kernel reads more from memory than there is data, because uses of the same data lie far apart in time",
        "a speed-up by the ratio of bytes moved to bytes needed",
        "data that fits in L2 as a whole",
    ),
    _cure(
        "batch-launches",
        "tiny-launches",
        ("launch", "latency", "occupancy"),
        "One launch for all rows, samples or steps",
        "one kernel is launched over and over with little work each time",
        "about 2 to 10 us saved per launch, and a full device instead of a few blocks",
        "steps that need all blocks of the previous step, where a CUDA graph helps instead",
    ),
    _cure(
        "drop-sync",
        "needless-sync",
        ("launch", "latency"),
        "Do not wait for the device within a call",
        "the host waits in the middle of a call, or reads a value back only to pass it on",
        "about 10 to 30 us saved per wait",
        "control flow of the host that depends on a value, where the device cannot take it over (sizes and counts can stay on the device)",
    ),
    _cure(
        "keep-on-device",
        "host-copies",
        ("latency", "launch", "memory"),
        "Keep data on the device",
        "tables, weights or intermediate results are copied between host and device in every call",
        "memory bandwidth instead of bus bandwidth, which is a fiftieth of it",
        "inputs that only the host has",
    ),
    _cure(
        "reuse-workspace",
        "cold-allocation",
        ("latency", "launch"),
        "Allocate once, or from PyTorch's pool",
        "every call uses cudaMalloc, cudaFree or empty_cache",
        "10 to 500 us saved per call, and no wait for the whole device",
        "gigabytes of workspace that would never be freed",
    ),
    _cure(
        "overlap-streams",
        "serialised-streams",
        ("occupancy", "latency", "launch"),
        "Run independent branches concurrently",
        "independent branches run one after another, and none of them fills the device",
        "a speed-up of up to the number of branches",
        "kernels that each fill the device",
    ),
    _cure(
        "fewer-barriers",
        "barrier-stalls",
        ("latency", "compute", "memory"),
        "Barriers only where data is handed over",
        "a block repeatedly waits for its slowest warp",
        "the share of time now spent at barriers",
        "barriers that order shared-memory accesses; the hand-over between copying and computing warps, where a wait shows which of them is slower",
    ),
    _cure(
        "privatise-atomics",
        "atomic-contention",
        ("latency", "memory"),
        "Accumulate locally before an atomic",
        "nearly every element issues an atomic to global memory",
        "3 to 100x where there are few distinct addresses",
        "atomics to addresses that are all different",
    ),
    _cure(
        "uniform-branches",
        "warp-divergence",
        ("compute", "latency"),
        "Have all lanes of a warp take the same branch",
        "lanes of a warp take different long branches",
        "a speed-up by the ratio of 32 to the number of active threads per warp",
        "branches of a few instructions, which become selects anyway",
    ),
    _cure(
        "tree-reduction",
        "serial-section",
        ("latency", "occupancy"),
        "Reduce with all threads",
        "one thread accumulates what a warp or a block could",
        "a speed-up of the serial part by the ratio of its length to its logarithm",
        "a handful of values",
        references=("Harris, Optimizing Parallel Reduction in CUDA",),
    ),
    _cure(
        "balance-work",
        "load-imbalance",
        ("occupancy", "latency"),
        "Distribute work evenly",
        "some blocks have far more work than the rest, and the kernel waits for them",
        "a speed-up by the ratio of the longest block time to the mean",
        "work that is already balanced",
    ),
    _cure(
        "drop-fill",
        "needless-fill",
        ("memory", "latency"),
        "Do not fill what will be overwritten",
        "an output or a buffer is filled with a value and then overwritten entirely",
        "one write of the tensor saved",
        "buffers that are accumulated into",
    ),
    _cure(
        "drop-copies",
        "needless-copy",
        ("memory", "latency"),
        "Read and write in place instead of copying",
        "clone, contiguous or cat precedes or follows a kernel",
        "one read and one write of each copied tensor saved",
        "layouts that a library requires",
    ),
)
