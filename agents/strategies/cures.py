"""Strategies that undo one named fault. The diagnosis names the fault; without it they have no use."""

from __future__ import annotations

from typing import Any

from agents.strategies.how_to import how_tos
from agents.strategies.strategy import Facts, Strategy

GUIDE = "NVIDIA CUDA C++ Best Practices Guide"


def no_reuse(facts: Facts) -> str | None:
    return "no datum is used for more than one result: there is nothing to keep" if facts.reuse is False else None


def _fp32_only(facts: Facts) -> str | None:
    return "fp32-strict asks for more than one product on tensor cores gives" if facts.precision == "fp32-strict" else None


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
        "Let neighbouring lanes touch neighbouring addresses",
        "a warp's loads or stores touch more sectors than their bytes need",
        "up to the share of wasted sectors: 2 to 8x on kernels that stream",
        "where the order of access is given by the data (gathers)",
    ),
    _cure(
        "pad-shared",
        "bank-conflicts",
        ("memory", "latency", "compute"),
        "Spread shared memory over its banks",
        "lanes of a warp read or write words of shared memory that lie in one bank",
        "the cycles in replays: 1.5 to 10x where shared memory sets the pace",
        "broadcasts, and accesses of 16 bytes a lane, which take four steps anyway",
    ),
    _cure(
        "relieve-registers",
        "register-spills",
        ("memory", "latency", "compute"),
        "Keep a thread's values in registers",
        "spills, or arrays that are indexed at run time, go through local memory",
        "the local traffic: 1.5 to 10x where it sets the pace",
        "raising registers where occupancy is already the limit",
    ),
    _cure(
        "raise-occupancy",
        "low-occupancy",
        ("occupancy", "latency", "memory"),
        "Let more warps be resident",
        "shared memory, registers or the block's size leave most of a multiprocessor's warps empty, and nothing hides the latency",
        "up to possible over present occupancy, until a resource is full",
        "kernels whose arithmetic or memory is busy already: tiles of products want few, fat warps",
    ),
    _cure(
        "tile-reuse",
        "no-data-reuse",
        ("memory", "latency", "compute"),
        "Read each datum once and share it",
        "many threads read the same data from global memory",
        "bytes asked for over bytes there are: 2 to 10x for products and filters without tiles",
        "data that each thread needs once",
        veto=no_reuse,
        references=(GUIDE, "Volkov and Demmel, SC 2008"),
    ),
    _cure(
        "hoist",
        "redundant-arithmetic",
        ("compute",),
        "Compute once what does not change",
        "functions of a row or a column alone are computed for every element",
        "the arithmetic falls to what differs from element to element",
        "values whose reload costs more than their computation",
    ),
    _cure(
        "cheap-math",
        "slow-functions",
        ("compute",),
        "Replace costly functions by cheap ones of equal accuracy",
        "pow, division and trigonometry where products, reciprocals or identities give the same",
        "10 to 100 instructions an element fewer",
        "approximations (__expf, -use_fast_math) that leave the error bound",
    ),
    _cure(
        "cheap-indices",
        "integer-overhead",
        ("compute",),
        "Compute indices without division",
        "indices are taken apart by division and remainder for every element, above all in 64 bits",
        "a 64-bit division is about 70 instructions; a 32-bit one about 20",
        "tensors of more than 2^31 elements need 64 bits for the address, not for every index",
    ),
    _cure(
        "single-precision",
        "fp64-arithmetic",
        ("compute",),
        "Keep fp32 arithmetic in fp32",
        "literals without f, or functions of double, turn an expression into fp64",
        "2x to 30x: half the rate at best, and long functions",
        "sums whose accuracy needs fp64",
    ),
    _cure(
        "tensor-cores",
        "no-tensor-cores",
        ("compute",),
        "Use tensor cores where the precision policy allows them",
        "a matrix product of 16-bit or TF32 numbers runs on the fp32 units",
        "4 to 15x for products that fill the device",
        "fp32-strict, unless the product is split so that the error bound holds",
        veto=_fp32_only,
        references=("NVIDIA CUDA C++ Programming Guide, warp matrix functions",),
    ),
    _cure(
        "reorder-for-cache",
        "cache-thrashing",
        ("memory",),
        "Come back to data while the cache still has them",
        "a kernel reads more from memory than there is, because uses of one datum lie far apart in time",
        "bytes moved over bytes needed",
        "data that fit into L2 as a whole",
    ),
    _cure(
        "batch-launches",
        "tiny-launches",
        ("launch", "latency", "occupancy"),
        "One launch for all rows, samples or steps",
        "one kernel is launched again and again with little work each",
        "about 2 to 10 us a launch, and a full device instead of a few blocks",
        "steps that need all of the previous step's blocks: there a CUDA graph helps",
    ),
    _cure(
        "drop-sync",
        "needless-sync",
        ("launch", "latency"),
        "Do not wait for the device within a call",
        "the host waits in the middle of a call, or reads a value back to pass it on",
        "about 10 to 30 us a wait",
        "control flow that really depends on a value",
    ),
    _cure(
        "keep-on-device",
        "host-copies",
        ("latency", "launch", "memory"),
        "Keep data on the device",
        "tables, weights or intermediate results travel between host and device in every call",
        "the bus carries a fiftieth of what the memory does",
        "inputs that only the host has",
    ),
    _cure(
        "reuse-workspace",
        "cold-allocation",
        ("latency", "launch"),
        "Allocate once, or from PyTorch's pool",
        "cudaMalloc, cudaFree or empty_cache in every call",
        "10 to 500 us a call, and a wait for the whole device",
        "holding gigabytes for ever",
    ),
    _cure(
        "overlap-streams",
        "serialised-streams",
        ("occupancy", "latency", "launch"),
        "Independent branches side by side",
        "branches that do not depend on each other run one after another, and none fills the device",
        "up to the number of branches",
        "kernels that fill the device by themselves",
    ),
    _cure(
        "fewer-barriers",
        "barrier-stalls",
        ("latency", "compute", "memory"),
        "Meet at a barrier only where data are handed over",
        "a block waits for its slowest warp again and again",
        "the share of time at barriers",
        "removing one that orders shared memory",
    ),
    _cure(
        "privatise-atomics",
        "atomic-contention",
        ("latency", "memory"),
        "Add up locally before an atomic",
        "nearly every element is an atomic to global memory",
        "3 to 100x where addresses are few",
        "addresses that are all different",
    ),
    _cure(
        "uniform-branches",
        "warp-divergence",
        ("compute", "latency"),
        "Let the lanes of a warp take one branch",
        "lanes of a warp take different long branches",
        "32 over active threads",
        "branches of a few instructions, which become selects",
    ),
    _cure(
        "tree-reduction",
        "serial-section",
        ("latency", "occupancy"),
        "Reduce with all threads",
        "one thread adds up what a warp or a block could",
        "the length of the serial part over its logarithm",
        "a handful of values",
        references=("Harris, Optimizing Parallel Reduction in CUDA",),
    ),
    _cure(
        "balance-work",
        "load-imbalance",
        ("occupancy", "latency"),
        "Deal out equal work",
        "some blocks have far more to do than others and are waited for",
        "longest over mean",
        "work that is equal already",
    ),
    _cure(
        "drop-fill",
        "needless-fill",
        ("memory", "latency"),
        "Do not fill what is overwritten",
        "an output or a buffer is set to a value and then written entirely",
        "a write of the tensor",
        "buffers that are added to",
    ),
    _cure(
        "drop-copies",
        "needless-copy",
        ("memory", "latency"),
        "Read and write in place of copying",
        "clone, contiguous or cat stand before or behind a kernel",
        "a read and a write of each copied tensor",
        "layouts that a library demands",
    ),
)
