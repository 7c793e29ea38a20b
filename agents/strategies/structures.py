"""Strategies that a coder has to implement, such as different algorithms, kernel structures or library calls."""

from __future__ import annotations

from agents.strategies import fitting
from agents.strategies.cures import GUIDE, no_reuse
from agents.strategies.strategy import Facts, Strategy

HOPPER = (9, 0)
AMPERE = (8, 0)
NEAR_VENDOR = 1.5  # a vendor's matrix product is not replaced if its time is below this multiple of the floor
SCATTERS = r"index_add|index add|index_put|index_reduce|scatter_add|scatter_reduce|segment|embedding_bag|bincount"  # sums at data-dependent positions
MANY_REGISTERS = 96  # registers per thread above which they limit the number of resident warps


def always(facts: Facts) -> bool:
    return True


def far_from_floor(facts: Facts) -> bool:
    return facts.headroom is None or facts.headroom > 1.05


def reduces(facts: Facts) -> bool:
    return facts.reductions is not False and far_from_floor(facts)


def multiplies(facts: Facts) -> bool:
    return facts.products is not False and far_from_floor(facts)


def _many_registers(facts: Facts) -> bool:
    return facts.registers is None or facts.registers >= MANY_REGISTERS


def _own_kernels(facts: Facts) -> bool:
    return (facts.own_share is None or facts.own_share > 0) and far_from_floor(facts)


def _short_calls(facts: Facts) -> bool:
    """Returns whether the host's share of a call matters. If the share is unknown, returns whether the call is short enough that it could matter."""
    if facts.host_share is not None:
        return facts.has_host_gaps
    return facts.program_us is None or facts.program_us < 500


def vendor_stays(facts: Facts) -> str | None:
    """Returns the reason why a vendor's matrix product should stay, or None. A custom replacement is tried only if there is room for a gain."""
    if facts.products and facts.headroom is not None and facts.headroom < NEAR_VENDOR:
        return f"the vendor's product stays, since it is within {NEAR_VENDOR:g}x of the floor"
    return None


def _tiles(facts: Facts) -> str | None:
    return no_reuse(facts) or vendor_stays(facts)


def _hopper(facts: Facts) -> str | None:
    return "it needs compute capability 9.0 or later" if facts.capability is not None and facts.capability < HOPPER else None


def _hopper_tiles(facts: Facts) -> str | None:
    return _hopper(facts) or _tiles(facts)


def _full_precision(facts: Facts) -> str | None:
    return f"the {facts.precision} policy keeps data in fp32" if facts.precision == "fp32-strict" else None


def _split_fits(facts: Facts) -> str | None:
    if facts.precision != "fp32-strict":
        return f"under {facts.precision} a single tensor-core product is enough"
    if facts.on_tensor_cores:
        return "the slowest kernel computes its products on tensor cores already"
    if facts.capability is not None and facts.capability < AMPERE:
        return "it needs TF32 tensor cores, that is, compute capability 8.0 or later"
    return vendor_stays(facts)


def _half_fits(facts: Facts) -> str | None:
    if facts.precision not in ("bf16", "fp16"):
        return f"16-bit operands are too narrow under {facts.precision}"
    if facts.capability is not None and facts.capability < AMPERE:
        return "it needs asynchronous copies and bf16 tensor cores, that is, compute capability 8.0 or later"
    return vendor_stays(facts)


BLOCKS: tuple[Strategy, ...] = (
    Strategy(
        name="fuse-block",
        title="A whole block of the model in one kernel",
        answers=("memory", "launch", "latency", "occupancy"),
        when=far_from_floor,
        applies="matmuls, normalisations and everything between them (including weights that are unpacked or scaled first) work on the same rows, "
        "and a tile of rows with all values computed on it (up to about 200 kB) fits on one SM",
        expectation="no memory traffic between the operators and a single launch: 1.5 to 5x where operators are short",
        forbidden="weights larger than L2 that every tile rereads; a matmul that alone keeps the arithmetic units busy for 100 us or more",
        references=("Dao et al., arXiv 2205.14135", "Wu et al., Mirage, arXiv 2405.05751"),
        cures=("split-fusion",),
        cures_when=lambda facts: bool(facts.products),
        veto=fitting.several_kernels,
    ),
    Strategy(
        name="grouped-product",
        title="Several matmuls of different sizes in one grouped-GEMM launch",
        answers=("occupancy", "launch", "latency"),
        when=lambda facts: facts.products is not False and far_from_floor(facts),
        applies="experts, heads or samples each have a matmul of their own, with sizes that differ or depend on data",
        expectation="one launch instead of one per group, with the tiles of all groups filling the device together: 2 to 8x over a host loop",
        forbidden="groups of equal size that the library's batched GEMM handles directly",
        references=("CUTLASS documentation, grouped kernel schedulers", "Gale et al., MegaBlocks, arXiv 2211.15841"),
        veto=fitting.groups,
    ),
    Strategy(
        name="gather-by-key",
        title="Gather all rows of a key in one block or warp",
        answers=("memory", "launch", "latency", "occupancy"),
        when=far_from_floor,
        applies="sums, maxima or softmax run over rows that share a key (edges of a node, tokens of an expert), with many rows per key",
        expectation="no atomics and no separate pass per operator, each key's rows read once and its result written once: 1.5 to 5x",
        forbidden="keys that change with every call, if counting and placing them costs more than the scatter; a key that has most of the rows",
        references=("Wang et al., DGL, arXiv 1909.01315", "Huang et al., GE-SpMM, arXiv 2007.03179"),
        needs=SCATTERS,
    ),
)

LAUNCHES: tuple[Strategy, ...] = (
    Strategy(
        name="cooperative-kernel",
        title="Dependent phases in one kernel, separated by grid-wide barriers",
        answers=("launch", "latency", "occupancy"),
        when=far_from_floor,
        applies="two or more kernels shorter than about 20 us run back to back, and all blocks of a phase need what the previous phase wrote",
        expectation="one launch and one device drain saved per barrier, which itself costs 1 to 3 us: 1.2 to 3x on calls shorter than 100 us",
        forbidden="more blocks than can be resident at once; phases that want different block shapes or very different register counts",
        references=("NVIDIA CUDA C++ Programming Guide, cooperative groups",),
        devices=("cuda",),
        veto=fitting.short_kernels,
    ),
    Strategy(
        name="dependent-launch",
        title="Start the next kernel while the previous one is finishing",
        answers=("launch", "latency"),
        when=far_from_floor,
        applies="custom kernels run back to back in one stream, each with a prologue (addresses, tables, weights) independent of the previous kernel",
        expectation="2 to 5 us saved per pair of kernels, inside a CUDA graph as well",
        forbidden="GPUs below compute capability 9.0; a kernel that reads its predecessor's results before it has waited for them",
        references=("NVIDIA CUDA C++ Programming Guide, programmatic dependent launch",),
        veto=fitting.every(_hopper, fitting.own_kernels_in_a_row),
        devices=("cuda",),
    ),
)

ALGORITHMS: tuple[Strategy, ...] = (
    Strategy(
        name="algebraic-rewrite",
        title="Remove work with an algebraic identity",
        answers=("compute", "memory", "latency"),
        when=far_from_floor,
        applies="a matmul has a diagonal or triangular operand, a reduction follows a matmul, or operators undo each other",
        expectation="a speed-up by the factor by which the work shrinks: the 10 to 90x outliers in published results come from here",
        forbidden="an identity that holds only for the tested values, or that breaks the error bound",
        references=("KernelBench level 1, tasks 12, 14, 15", "arXiv 2603.10085"),
    ),
    Strategy(
        name="fold-constants",
        title="Compute once what depends only on parameters",
        answers=("compute", "memory", "launch", "latency"),
        when=always,
        applies="parameters are transformed in every call: batch norm in eval mode, transposed or concatenated weights, tables",
        expectation="calls without the folded operators",
        forbidden="anything that depends on an input, batch statistics in train mode, folded copies that are not refreshed when weights change",
        references=("Jacob et al., CVPR 2018, section 3.2",),
        veto=fitting.foldable,
    ),
    Strategy(
        name="one-pass-moments",
        title="Mean and variance in one read",
        answers=("memory", "latency"),
        when=reduces,
        applies="a normalisation reads its row once for the mean and again for the variance",
        expectation="one read fewer: up to 1.5x where rows come from memory",
        forbidden="the mean of squares minus the squared mean, which cancels for data far from zero",
        references=("Welford 1962", "Chan, Golub and LeVeque 1983"),
        needs=r"norm|\bvar|\bstd",
    ),
    Strategy(
        name="stream-through-softmax",
        title="Matmul, softmax and matmul without the score matrix in memory",
        answers=("memory",),
        when=lambda facts: multiplies(facts) and reduces(facts) and facts.scores is not False,
        applies="attention scores are written, normalised and read back, and their matrix is larger than the inputs and outputs",
        expectation="traffic linear instead of quadratic in the sequence length: 2 to 8x where the scores are several times the size of L2",
        forbidden="scores smaller than half of L2 (25 MB on an H100), which stay in cache; cases that the library's attention handles at the same "
        "speed",
        references=("Dao et al., arXiv 2205.14135", "Milakov and Gimelshein, arXiv 1805.02867"),
        needs=r"softmax|attention|\bexp\b",
        veto=fitting.scores_exceed_cache,
    ),
)

REUSE: tuple[Strategy, ...] = (
    Strategy(
        name="register-blocking",
        title="Several results per thread from the same operands",
        answers=("compute", "memory", "latency"),
        when=multiplies,
        applies="a custom matmul or filter loads two operands for every multiplication",
        expectation="more arithmetic per load, growing with the side of the register tile: 2 to 4x over one result per thread",
        forbidden="a matmul that the vendor library runs near the floor; more than about 128 registers per thread",
        references=("Volkov and Demmel, SC 2008",),
        veto=fitting.every(_tiles, fitting.plain_products),
    ),
    Strategy(
        name="software-pipeline",
        title="Copy the next tile while computing on the current one",
        answers=("latency", "memory", "compute"),
        when=multiplies,
        applies="a loop over tiles waits for its loads, computes, then waits again",
        expectation="the shorter of copy and compute time hidden: 1.1 to 1.6x",
        forbidden="loops whose tiles are not reused; stages that cost the second resident block",
        references=("NVIDIA CUDA C++ Programming Guide, asynchronous data copies",),
        veto=no_reuse,
    ),
    Strategy(
        name="tma-copies",
        title="Bulk tile copies with the Tensor Memory Accelerator",
        answers=("memory", "latency"),
        when=multiplies,
        applies="many threads copy tiles of a regular tensor to shared memory on a GPU of compute capability 9.0 or later",
        expectation="no address computations and fewer registers: 1.05 to 1.3x in a pipelined loop",
        forbidden="older GPUs, irregular access, strides that are not a multiple of 16 bytes",
        references=("NVIDIA CUDA C++ Programming Guide, tensor memory access",),
        veto=_hopper_tiles,
        devices=("cuda",),
    ),
    Strategy(
        name="swizzle-blocks",
        title="Run blocks that share tiles at the same time",
        answers=("memory",),
        when=multiplies,
        applies="a matmul's operands do not fit in L2, and blocks that run together use different rows and columns",
        expectation="fewer reads from memory: 1.05 to 1.4x on custom matmuls whose operands exceed L2",
        forbidden="operands that fit in L2, kernels without shared tiles",
        references=("Tillet et al., Triton, MAPL 2019", "CUTLASS documentation, threadblock swizzling"),
        veto=fitting.every(_tiles, fitting.operands_exceed_cache),
    ),
    Strategy(
        name="read-only-cache",
        title="Keep small, widely read tables in cache",
        answers=("latency", "memory"),
        when=_own_kernels,
        applies="all threads read the same small operand (bias, scales, filters, tables) alongside the streamed data",
        expectation="1.02 to 1.1x, more where the streamed data kept evicting the table",
        forbidden="data that is never read twice: a cache hint without reuse does nothing",
        references=(GUIDE,),
        veto=no_reuse,
    ),
)

ACCESS: tuple[Strategy, ...] = (
    Strategy(
        name="loads-in-flight",
        title="More loads in flight at once",
        answers=("latency", "memory"),
        when=far_from_floor,
        applies="memory bandwidth is 40 to 80 % used and threads wait for loads that depend on nothing",
        expectation="1.1 to 1.5x, until the bandwidth is saturated",
        forbidden="kernels at the bandwidth ceiling; unrolling that spills",
        references=("Little's law; Volkov, Better performance at lower occupancy, GTC 2010",),
        mends=True,
        veto=fitting.streams,
    ),
    Strategy(
        name="align-and-tail",
        title="Keep tails and misalignment out of the main loop",
        answers=("memory", "latency"),
        when=_own_kernels,
        applies="a streaming kernel checks bounds for every element, or starts at an address that rules out wide loads",
        expectation="1.02 to 1.1x: the last few per cent of a streaming kernel",
        forbidden="programs for which structural strategies are still untried",
        references=(GUIDE,),
        mends=True,
        veto=fitting.streams,
        finishes=True,
    ),
)

PARALLELISM: tuple[Strategy, ...] = (
    Strategy(
        name="work-per-thread",
        title="Several independent results per thread",
        answers=("latency", "compute"),
        when=_own_kernels,
        applies="each thread runs a single chain of dependent instructions, and there are more threads than the device needs",
        expectation="1.1 to 1.5x from overlapping latencies and shared index arithmetic",
        forbidden="grids that would shrink below two blocks per SM",
        references=("Volkov, Better performance at lower occupancy, GTC 2010",),
        veto=fitting.enough_blocks,
    ),
    Strategy(
        name="warp-a-row",
        title="One warp per short row, several rows per block, no barrier",
        answers=("latency", "occupancy"),
        when=reduces,
        applies="rows of up to about 1024 elements are each reduced by a whole block or serially by one thread, and most of the time is spent "
        "waiting",
        expectation="1.2 to 2x on short rows, without barriers or shared memory",
        forbidden="rows of more than about 2,048 elements, which do not fit in the registers of a warp",
        references=("arXiv 2511.01884", GUIDE),
        veto=fitting.short_rows,
    ),
    Strategy(
        name="split-k",
        title="Split the K dimension of a matmul across blocks",
        answers=("occupancy", "latency"),
        when=multiplies,
        applies="a matmul has fewer 128 by 128 tiles than the device has SMs, and K is at least four times M or N",
        expectation="a speed-up of up to the number of splits, minus one extra pass over the result: 1.2 to 4x",
        forbidden="matmuls with enough tiles; atomics where results must be bitwise reproducible",
        references=("Osama et al., Stream-K, arXiv 2301.03598",),
        veto=fitting.every(vendor_stays, fitting.deep_products),
    ),
    Strategy(
        name="persistent-kernel",
        title="Persistent blocks that take one tile after another",
        answers=("occupancy", "launch", "latency"),
        when=_own_kernels,
        applies="tiles take less than about 5 us, a tail wave leaves the device half empty, many launched blocks find no work, or every block "
        "repeats a prologue",
        expectation="1.05 to 1.2x; more where the prologue is long",
        forbidden="single-wave kernels; tiles that need all other blocks of the device",
        references=("Gupta, Stuart and Owens, A study of persistent threads, 2012",),
        veto=fitting.several_waves,
    ),
    Strategy(
        name="warp-roles",
        title="Warp specialisation with separate copy and compute warps, products by wgmma",
        answers=("compute", "latency"),
        when=multiplies,
        applies="a tensor-core pipeline still has bubbles, or multiplies by mma.sync, on a GPU of compute capability 9.0 or later",
        expectation="1.05 to 1.3x over a plain pipeline; up to 1.5x from mma.sync to wgmma",
        forbidden="older GPUs; kernels without a pipeline",
        references=("Shah et al., FlashAttention-3, arXiv 2407.08608",),
        veto=fitting.every(_hopper_tiles, fitting.tensor_pipeline),
        devices=("cuda",),
    ),
    Strategy(
        name="shrink-live-ranges",
        title="Fewer values live at once",
        answers=("occupancy", "latency"),
        when=lambda facts: _many_registers(facts) and facts.registers_alone is not False,
        applies=f"a thread uses {MANY_REGISTERS} registers or more, and they limit the number of resident warps",
        expectation="the additional resident warps: 1.05 to 1.4x",
        forbidden="matmul tiles, which want many registers and few warps",
        references=(GUIDE, "arXiv 2603.10085"),
        mends=True,
    ),
)

ARITHMETIC: tuple[Strategy, ...] = (
    Strategy(
        name="vector-math",
        title="Fast hardware functions within the error bound",
        answers=("compute", "latency"),
        when=_own_kernels,
        applies="exp, tanh, erf or the like are the bottleneck of a pointwise kernel, and the error bound leaves room",
        expectation="1.2 to 3x where functions, not memory, are the bottleneck",
        forbidden="errors beyond the bound anywhere in the argument range; memory-bound kernels",
        references=("NVIDIA CUDA C++ Programming Guide, mathematical functions", "Muller, Elementary Functions, 2016"),
        veto=fitting.functions,
    ),
    Strategy(
        name="fewer-instructions",
        title="An inner loop with nothing but the task's arithmetic",
        answers=("compute",),
        when=_own_kernels,
        applies="the execution units are busy, memory is not, and much of the code computes addresses, bounds and conversions",
        expectation="1.1 to 1.5x",
        forbidden="memory-bound kernels",
        references=(GUIDE, "arXiv 2603.10085"),
        mends=True,
    ),
    Strategy(
        name="split-product",
        title="Full precision from three tensor-core products",
        answers=("compute",),
        when=multiplies,
        applies="a matmul of 1 GFLOP or more (a recurrence's steps together) under fp32-strict is the bottleneck on a GPU with TF32 tensor cores",
        expectation="1.5 to 3x over the fp32 units; meeting the error bound depends on how sums are accumulated",
        forbidden="sums over more than about 32 elements of K in the tensor cores' accumulator, which rounds down; policies that allow one product",
        references=("Ootomo and Yokota, arXiv 2203.03341",),
        veto=fitting.every(_split_fits, fitting.large_products),
        devices=("cuda",),
    ),
    Strategy(
        name="half-product",
        title="Matmuls and convolutions on 16-bit operands, fused with everything that follows",
        answers=("compute", "memory", "launch"),
        when=multiplies,
        applies="the policy is bf16 or fp16, and there are few rows or odd shapes, or pointwise operators after a matmul or convolution",
        expectation="one launch and one pass over memory saved per following operator; 1.1 to 2x where the library's tiles do not fit the shape",
        forbidden="dense matmuls with M, N and K of 2,048 or more and nothing around them, where the library is at its ceiling; 16-bit accumulation",
        references=("Thakkar et al., CUTLASS 3", "NVIDIA PTX ISA, asynchronous warpgroup level matrix instructions"),
        veto=_half_fits,
        devices=("cuda",),
    ),
    Strategy(
        name="reduced-precision",
        title="Narrow data, wide arithmetic",
        answers=("memory", "compute"),
        when=far_from_floor,
        applies="the policy is tf32, bf16 or fp16, and data still moves between kernels as fp32",
        expectation="up to 2x less traffic, and tensor cores for matmuls",
        forbidden="fp32-strict; sums and statistics in the narrow type",
        references=("Micikevicius et al., arXiv 1710.03740",),
        veto=_full_precision,
    ),
)

SYNCHRONISATION: tuple[Strategy, ...] = (
    Strategy(
        name="warp-reductions",
        title="Reduce privately, then once across threads, with shuffles instead of barriers",
        answers=("latency", "compute"),
        when=reduces,
        applies="a block reduces through shared memory with a barrier after every halving, or threads synchronise in every step of a loop",
        expectation="1.2 to 2.4x on reductions, as sixteen barriers become one or two",
        forbidden="reductions that already use shuffles",
        references=("arXiv 2511.01884", "Harris, Optimizing Parallel Reduction in CUDA"),
        mends=True,
        veto=fitting.large_reductions,
    ),
)

SPACE: tuple[Strategy, ...] = (
    Strategy(
        name="library-variant",
        title="The library call that does the most work",
        answers=("compute", "launch", "memory"),
        when=lambda facts: facts.products is not False,
        applies="several matmuls share an input, are called in a loop, or are followed by operators that the library can fuse",
        expectation="1.1 to 3x where matmuls shorter than about 20 us dominate",
        forbidden="global switches that outlive the call; a precision other than the policy's",
        references=("NVIDIA cuBLASLt documentation", "PyTorch documentation, addmm and baddbmm"),
        veto=fitting.library_computes_products,
    ),
    Strategy(
        name="lean-forward",
        title="Less host work per call",
        answers=("launch", "latency"),
        when=_short_calls,
        applies="the device waits for the host, which operators, views, checks and look-ups keep busy before and between launches",
        expectation="3 to 10 us saved per operator removed, up to the time the device waits for the host",
        forbidden="calls in which the host runs ahead of the device, with less than about 3 % of the call spent waiting for it",
        references=("PyTorch documentation, performance tuning guide",),
    ),
    Strategy(
        name="kernel-fission",
        title="Split a kernel that does too much",
        answers=("occupancy", "latency", "compute"),
        when=_many_registers,
        applies="one kernel combines phases of different shape, spills or diverges, and little data crosses between the phases",
        expectation="1.1 to 2x where registers or divergence are the bottleneck, at the cost of one more launch and one more round trip",
        forbidden="memory-bound kernels, which would move their data twice",
        references=("arXiv 2603.10085",),
        veto=lambda facts: "it would move the data twice, and the program is memory-bound" if facts.bottleneck == "memory" else None,
        mends=True,
    ),
)

STRUCTURES = (*BLOCKS, *LAUNCHES, *ALGORITHMS, *REUSE, *ACCESS, *PARALLELISM, *ARITHMETIC, *SYNCHRONISATION, *SPACE)
