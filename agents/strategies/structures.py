"""Strategies that a coder has to write: other algorithms, other structures of a kernel, other calls of the library."""

from __future__ import annotations

from agents.strategies.cures import GUIDE, no_reuse
from agents.strategies.strategy import Facts, Strategy

HOPPER = (9, 0)
AMPERE = (8, 0)
NEAR_VENDOR = 1.5  # of the floor: a vendor's product that is so near is not replaced
MANY_REGISTERS = 96  # a thread: from here on they limit the warps that can be resident


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
    """Where the host's share of a call is not known, a call that is short enough for it to count."""
    if facts.host_share is not None:
        return facts.waits_for_host or facts.host_share >= 0.1
    return facts.program_us is None or facts.program_us < 500


def vendor_stays(facts: Facts) -> str | None:
    """The loops of a vendor's product stay by default: one's own has to have room to win."""
    if facts.products and facts.headroom is not None and facts.headroom < NEAR_VENDOR:
        return f"the vendor's product stays: it is within {NEAR_VENDOR:g}x of the floor"
    return None


def _tiles(facts: Facts) -> str | None:
    return no_reuse(facts) or vendor_stays(facts)


def _hopper(facts: Facts) -> str | None:
    return "it needs compute capability 9.0" if facts.capability is not None and facts.capability < HOPPER else None


def _hopper_tiles(facts: Facts) -> str | None:
    return _hopper(facts) or _tiles(facts)


def _full_precision(facts: Facts) -> str | None:
    return f"the policy {facts.precision} keeps fp32" if facts.precision == "fp32-strict" else None


def _split_fits(facts: Facts) -> str | None:
    if facts.precision != "fp32-strict":
        return f"under {facts.precision} one product on tensor cores is enough"
    if facts.capability is not None and facts.capability < AMPERE:
        return "it needs tensor cores for TF32, from compute capability 8.0 on"
    return vendor_stays(facts)


def _half_fits(facts: Facts) -> str | None:
    if facts.precision not in ("bf16", "fp16"):
        return f"under {facts.precision} operands of 16 bits are too narrow"
    if facts.capability is not None and facts.capability < AMPERE:
        return "it needs asynchronous copies and tensor cores for bf16, from compute capability 8.0 on"
    return vendor_stays(facts)


BLOCKS: tuple[Strategy, ...] = (
    Strategy(
        name="fuse-block",
        title="A whole block of the model in one kernel",
        answers=("memory", "launch", "latency", "occupancy"),
        when=far_from_floor,
        applies="products, normalisations and what lies between them work on the same rows, and a tile of rows with what is computed on it "
        "(up to some 200 kB) fits a multiprocessor",
        expectation="nothing between the operators travels through memory, and one launch is left: 1.5 to 5x where operators are short",
        forbidden="weights of more than L2 that every tile reads anew; a product that fills the device for 100 us or more by itself",
        references=("Dao et al., arXiv 2205.14135", "Wu et al., Mirage, arXiv 2405.05751"),
    ),
    Strategy(
        name="grouped-product",
        title="Several products of different sizes in one launch",
        answers=("occupancy", "launch", "latency"),
        when=lambda facts: facts.products is not False and far_from_floor(facts),
        applies="experts, heads or samples each have a product of their own, whose sizes differ or depend on data",
        expectation="one launch instead of one a group, and tiles of all groups fill the device together: 2 to 8x over a loop on the host",
        forbidden="groups of equal size that a batched product of the library takes as they lie",
        references=("CUTLASS documentation, grouped kernel schedulers", "Gale et al., MegaBlocks, arXiv 2211.15841"),
    ),
)

LAUNCHES: tuple[Strategy, ...] = (
    Strategy(
        name="cooperative-kernel",
        title="Phases that need each other's results in one kernel, with a barrier over the device between them",
        answers=("launch", "latency", "occupancy"),
        when=far_from_floor,
        applies="two or more kernels of less than about 20 us each follow each other, and all blocks of a phase need what the phase before wrote",
        expectation="a launch and a drained device less for each barrier, which costs 1 to 3 us itself: 1.2 to 3x on calls of less than 100 us",
        forbidden="more blocks than are resident at once; phases that want different shapes of block or very different amounts of registers",
        references=("NVIDIA CUDA C++ Programming Guide, cooperative groups",),
        devices=("cuda",),
    ),
    Strategy(
        name="dependent-launch",
        title="Begin the next kernel while the one before still ends",
        answers=("launch", "latency"),
        when=far_from_floor,
        applies="own kernels follow each other in one stream, each with a prologue (addresses, tables, weights) that needs nothing of the one before",
        expectation="2 to 5 us for each pair of kernels; it works inside a CUDA graph as well",
        forbidden="GPUs before compute capability 9.0; a kernel that reads anything of the one before ahead of its wait",
        references=("NVIDIA CUDA C++ Programming Guide, programmatic dependent launch",),
        veto=_hopper,
        devices=("cuda",),
    ),
)

ALGORITHMS: tuple[Strategy, ...] = (
    Strategy(
        name="algebraic-rewrite",
        title="Remove work by an identity",
        answers=("compute", "memory", "latency"),
        when=far_from_floor,
        applies="a product with a diagonal or triangular matrix, a reduction behind a product, operators that undo each other",
        expectation="as many times as the work shrinks: the outliers of 10 to 90x in published results come from here",
        forbidden="an identity that holds for the tested values only, or that loses the error bound",
        references=("KernelBench level 1, tasks 12, 14, 15", "arXiv 2603.10085"),
    ),
    Strategy(
        name="fold-constants",
        title="Compute once what depends on parameters alone",
        answers=("compute", "memory", "launch", "latency"),
        when=always,
        applies="parameters are transformed in every call: batch norm in eval mode, transposed or concatenated weights, tables",
        expectation="the folded operators vanish from a call",
        forbidden="what depends on an input, batch statistics in train mode, or a folded copy that is not renewed when weights change",
        references=("Jacob et al., CVPR 2018, section 3.2",),
    ),
    Strategy(
        name="one-pass-moments",
        title="Mean and variance in one read",
        answers=("memory", "latency"),
        when=reduces,
        applies="a normalisation reads its row once for the mean and once more for the variance",
        expectation="one read less: up to 1.5x where rows come from memory",
        forbidden="the difference of the mean of squares and the squared mean: it cancels for data far from zero",
        references=("Welford 1962", "Chan, Golub and LeVeque 1983"),
    ),
    Strategy(
        name="stream-through-softmax",
        title="Product, softmax, product without the matrix between",
        answers=("memory",),
        when=lambda facts: multiplies(facts) and reduces(facts),
        applies="attention: scores are written, normalised and read again, and their matrix is larger than inputs and outputs",
        expectation="traffic falls from quadratic to linear in the length: 2 to 8x where the scores are several times L2",
        forbidden="scores of less than half of L2 (25 MB on an H100), which stay in cache; a library's attention that takes this case and is level",
        references=("Dao et al., arXiv 2205.14135", "Milakov and Gimelshein, arXiv 1805.02867"),
        needs=r"softmax|attention|\bexp\b",
    ),
)

REUSE: tuple[Strategy, ...] = (
    Strategy(
        name="register-blocking",
        title="Several results a thread from the same operands",
        answers=("compute", "memory", "latency"),
        when=multiplies,
        applies="a product or filter of one's own loads two operands for every multiplication",
        expectation="arithmetic a load grows with the side of the rectangle: 2 to 4x over one result a thread",
        forbidden="a product that the vendor does near the floor; more than about 128 registers a thread",
        references=("Volkov and Demmel, SC 2008",),
        veto=_tiles,
    ),
    Strategy(
        name="software-pipeline",
        title="Copy the next tile while computing on this one",
        answers=("latency", "memory", "compute"),
        when=multiplies,
        applies="a loop over tiles waits for its loads, then computes, then waits again",
        expectation="the shorter of both times is hidden: 1.1 to 1.6x",
        forbidden="loops without tiles that are used again; stages that cost the second resident block",
        references=("NVIDIA CUDA C++ Programming Guide, asynchronous data copies",),
        veto=no_reuse,
    ),
    Strategy(
        name="tma-copies",
        title="Bulk copies of tiles by the tensor memory accelerator",
        answers=("memory", "latency"),
        when=multiplies,
        applies="tiles of a regular tensor are copied to shared memory by many threads on a GPU of compute capability 9.0 or later",
        expectation="address computations and registers fall away: 1.05 to 1.3x in a pipelined loop",
        forbidden="older GPUs, irregular access, strides that are no multiple of 16 bytes",
        references=("NVIDIA CUDA C++ Programming Guide, tensor memory access",),
        veto=_hopper_tiles,
        devices=("cuda",),
    ),
    Strategy(
        name="swizzle-blocks",
        title="Run blocks that share tiles at the same time",
        answers=("memory",),
        when=multiplies,
        applies="a product's operands do not fit into L2, and blocks that run together use different rows and columns",
        expectation="fewer reads from memory: 1.05 to 1.4x on products of one's own whose operands exceed L2",
        forbidden="operands that fit into L2, kernels without shared tiles",
        references=("Tillet et al., Triton, MAPL 2019", "CUTLASS documentation, threadblock swizzling"),
        veto=_tiles,
    ),
    Strategy(
        name="read-only-cache",
        title="Small tables where all readers find them",
        answers=("latency", "memory"),
        when=_own_kernels,
        applies="all threads read the same small operand (bias, scales, filters, tables) besides the streams",
        expectation="1.02 to 1.1x, more where the table was pushed out by the streams",
        forbidden="where nothing is read twice: a cache hint without a source of reuse does nothing",
        references=(GUIDE,),
        veto=no_reuse,
    ),
)

ACCESS: tuple[Strategy, ...] = (
    Strategy(
        name="loads-in-flight",
        title="More loads on their way at the same time",
        answers=("latency", "memory"),
        when=far_from_floor,
        applies="memory is used at 40 to 80 % and threads wait for loads that depend on nothing",
        expectation="1.1 to 1.5x, until the memory is full",
        forbidden="kernels at the memory's ceiling; unrolling that spills",
        references=("Little's law; Volkov, Better performance at lower occupancy, GTC 2010",),
    ),
    Strategy(
        name="align-and-tail",
        title="Free the main loop of tails and misalignment",
        answers=("memory", "latency"),
        when=_own_kernels,
        applies="a streaming kernel checks bounds for every element, or starts at an address that wide loads cannot take",
        expectation="1.02 to 1.1x: for the last per cent of a kernel that streams",
        forbidden="before structural strategies have been tried",
        references=(GUIDE,),
    ),
)

PARALLELISM: tuple[Strategy, ...] = (
    Strategy(
        name="work-per-thread",
        title="Several independent results a thread",
        answers=("latency", "compute"),
        when=_own_kernels,
        applies="each thread has one chain of dependent instructions, and there are more threads than the device needs",
        expectation="1.1 to 1.5x: latencies overlap, and index arithmetic is shared",
        forbidden="grids that become smaller than two blocks a multiprocessor",
        references=("Volkov, Better performance at lower occupancy, GTC 2010",),
    ),
    Strategy(
        name="warp-a-row",
        title="Short rows several at a time, without a barrier",
        answers=("latency", "occupancy"),
        when=reduces,
        applies="rows of up to about 1024 elements are each reduced by a whole block, or by one thread after another, and mostly wait",
        expectation="1.2 to 2x on short rows: no barrier, no shared memory",
        forbidden="rows of more than about 2,048 elements: they do not fit the registers of a warp",
        references=("arXiv 2511.01884", GUIDE),
    ),
    Strategy(
        name="split-k",
        title="Divide the sum of a product among blocks",
        answers=("occupancy", "latency"),
        when=multiplies,
        applies="a product has fewer tiles of 128 by 128 than the device has multiprocessors, and K is at least four times M or N",
        expectation="up to the number of parts, less one more pass over the result: 1.2 to 4x",
        forbidden="products with enough tiles; atomics where results must repeat bit by bit",
        references=("Osama et al., Stream-K, arXiv 2301.03598",),
        veto=vendor_stays,
    ),
    Strategy(
        name="persistent-kernel",
        title="Blocks that stay and take one tile after another",
        answers=("occupancy", "launch", "latency"),
        when=_own_kernels,
        applies="tiles of less than about 5 us, a tail wave that leaves the device half empty, or a prologue that each block repeats",
        expectation="1.05 to 1.2x; more where the prologue is long",
        forbidden="kernels of one wave; tiles that need all of the device's other blocks",
        references=("Gupta, Stuart and Owens, A study of persistent threads, 2012",),
    ),
    Strategy(
        name="warp-roles",
        title="Warps that copy and warps that compute",
        answers=("compute", "latency"),
        when=multiplies,
        applies="a pipeline on tensor cores still has bubbles on a GPU of compute capability 9.0 or later",
        expectation="1.05 to 1.3x over a plain pipeline",
        forbidden="older GPUs; kernels without a pipeline",
        references=("Shah et al., FlashAttention-3, arXiv 2407.08608",),
        veto=_hopper_tiles,
        devices=("cuda",),
    ),
    Strategy(
        name="shrink-live-ranges",
        title="Fewer values alive at once",
        answers=("occupancy", "latency"),
        when=_many_registers,
        applies=f"a thread has {MANY_REGISTERS} registers or more, and they bound the warps that can be resident",
        expectation="the warps that fit in addition: 1.05 to 1.4x",
        forbidden="tiles of products, which want many registers and few warps",
        references=(GUIDE, "arXiv 2603.10085"),
    ),
)

ARITHMETIC: tuple[Strategy, ...] = (
    Strategy(
        name="vector-math",
        title="Functions that the hardware computes fast, within the bound",
        answers=("compute", "latency"),
        when=_own_kernels,
        applies="exp, tanh, erf or the like set the pace of a pointwise kernel, and the error bound leaves room",
        expectation="1.2 to 3x where functions, not memory, set the pace",
        forbidden="errors beyond the bound anywhere in the range of arguments; kernels that are bound by memory",
        references=("NVIDIA CUDA C++ Programming Guide, mathematical functions", "Muller, Elementary Functions, 2016"),
    ),
    Strategy(
        name="fewer-instructions",
        title="An inner loop with nothing but the task's arithmetic",
        answers=("compute",),
        when=_own_kernels,
        applies="the units are busy, memory is not, and much of the code computes addresses, bounds and conversions",
        expectation="1.1 to 1.5x",
        forbidden="kernels bound by memory",
        references=(GUIDE, "arXiv 2603.10085"),
    ),
    Strategy(
        name="split-product",
        title="Full precision from three products on tensor cores",
        answers=("compute",),
        when=multiplies,
        applies="a product of 1 GFLOP or more under fp32-strict sets the pace on a GPU with TF32 tensor cores",
        expectation="1.5 to 3x over fp32 units; the bound is a matter of how sums are accumulated",
        forbidden="sums of more than some 32 terms in the tensor cores' own accumulator, which rounds down; policies that allow one product",
        references=("Ootomo and Yokota, arXiv 2203.03341",),
        veto=_split_fits,
        devices=("cuda",),
    ),
    Strategy(
        name="half-product",
        title="Products and convolutions of 16 bit operands with all that follows in one kernel",
        answers=("compute", "memory", "launch"),
        when=multiplies,
        applies="under bf16 or fp16, few rows or odd shapes, or pointwise operators behind a product or a convolution",
        expectation="a launch and a pass over memory less for each operator behind; 1.1 to 2x where the library's tiles do not fit the shape",
        forbidden="dense products with M, N and K of 2,048 or more and nothing around them, where the library is at its ceiling; sums in 16 bits",
        references=("Thakkar et al., CUTLASS 3", "NVIDIA PTX ISA, asynchronous warpgroup level matrix instructions"),
        veto=_half_fits,
        devices=("cuda",),
    ),
    Strategy(
        name="reduced-precision",
        title="Narrow data, wide arithmetic",
        answers=("memory", "compute"),
        when=far_from_floor,
        applies="the policy is tf32, bf16 or fp16, and data still travel as fp32 between kernels",
        expectation="up to 2x less traffic, and tensor cores for products",
        forbidden="fp32-strict; sums and statistics in the narrow type",
        references=("Micikevicius et al., arXiv 1710.03740",),
        veto=_full_precision,
    ),
)

SYNCHRONISATION: tuple[Strategy, ...] = (
    Strategy(
        name="warp-reductions",
        title="Reduce privately, then once: shuffles in place of barriers",
        answers=("latency", "compute"),
        when=reduces,
        applies="a block reduces through shared memory with a barrier after every halving, or threads meet in every step of a loop",
        expectation="1.2 to 2.4x on reductions: sixteen barriers become one or two",
        forbidden="reductions that go by shuffles already",
        references=("arXiv 2511.01884", "Harris, Optimizing Parallel Reduction in CUDA"),
    ),
)

SPACE: tuple[Strategy, ...] = (
    Strategy(
        name="library-variant",
        title="The library's call that does most at once",
        answers=("compute", "launch", "memory"),
        when=lambda facts: facts.products is not False,
        applies="several products share an input, are batched by a loop, or are followed by what the library can take along",
        expectation="1.1 to 3x where products of less than about 20 us dominate",
        forbidden="global switches that outlive the call; another precision than the policy's",
        references=("NVIDIA cuBLASLt documentation", "PyTorch documentation, addmm and baddbmm"),
    ),
    Strategy(
        name="lean-forward",
        title="Less work for the host in a call",
        answers=("launch", "latency"),
        when=_short_calls,
        applies="the device waits for the host, which operators, views, checks and look-ups keep busy before and between launches",
        expectation="3 to 10 us for each operator that goes away, up to what the device waits for the host",
        forbidden="calls in which the host is ahead of the device: where less than about a tenth of a call is spent waiting for it",
        references=("PyTorch documentation, performance tuning guide",),
    ),
    Strategy(
        name="kernel-fission",
        title="Cut a kernel that does too much",
        answers=("occupancy", "latency", "compute"),
        when=_many_registers,
        applies="one kernel joins phases of different shape, spills or diverges, and little data crosses between them",
        expectation="1.1 to 2x where registers or divergence set the pace; one more launch and one more round trip",
        forbidden="kernels bound by memory, which would move their data twice",
        references=("arXiv 2603.10085",),
        veto=lambda facts: "it would move the data twice, and memory sets the pace" if facts.bottleneck == "memory" else None,
    ),
)

STRUCTURES = (*BLOCKS, *LAUNCHES, *ALGORITHMS, *REUSE, *ACCESS, *PARALLELISM, *ARITHMETIC, *SYNCHRONISATION, *SPACE)
