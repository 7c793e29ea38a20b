"""The catalogue: strategies that the built-in compiler applies, strategies that only a coder can implement, and cures that fix one named fault
each."""

from __future__ import annotations

from agents.strategies import fitting
from agents.strategies.cures import CURES, no_reuse
from agents.strategies.strategy import Facts, Strategy
from agents.strategies.structures import STRUCTURES, always, far_from_floor, multiplies, reduces


def _many_small_launches(facts: Facts) -> bool:
    if facts.waits_for_host:
        return True
    if facts.launches is None or facts.program_us is None:
        return facts.bottleneck in ("launch", "latency")
    if facts.has_host_gaps and facts.launches >= 2:
        return True
    if facts.device_busy is not None:
        return facts.launches >= 2 and facts.device_busy < 0.7
    return facts.launches >= 4 and facts.program_us / facts.launches < 50


def _no_graph(facts: Facts) -> str | None:
    return None if facts.static_shapes else "a CUDA graph needs the same shapes in every call"


CATALOGUE: tuple[Strategy, ...] = (
    Strategy(
        name="fuse-pointwise",
        title="Fuse a chain of pointwise operators into one kernel",
        answers=("memory", "launch", "latency"),
        when=always,
        applies="several pointwise operators run back to back and their intermediates are used nowhere else",
        expectation="one tensor write, one tensor read and one launch saved per fused operator",
        forbidden="intermediates that are outputs or are used outside the chain, which have to be written anyway",
        references=("arXiv 2603.02637", "Jia et al., TASO, SOSP 2019"),
        cures=("split-fusion",),
        cures_when=lambda facts: not facts.reductions,
        veto=fitting.chains,
    ),
    Strategy(
        name="fuse-row-reduction",
        title="Fuse a row reduction with the pointwise operators around it",
        answers=("memory", "launch", "latency"),
        when=lambda facts: facts.reductions is not False,
        applies="a reduction runs over trailing dimensions and the operators around it are pointwise over the same rows",
        expectation="normalisations in one or two reads and one write instead of one pass per operator",
        forbidden="reductions over leading dimensions, whose rows are not contiguous",
        references=("Welford 1962", "arXiv 1805.02867"),
        cures=("split-fusion",),
        cures_when=lambda facts: bool(facts.reductions),
    ),
    Strategy(
        name="fuse-matmul-tail",
        title="Fuse everything that follows a matmul or convolution into one pass",
        answers=("memory", "launch", "latency"),
        when=lambda facts: facts.products is not False,
        applies="a bias, activation, scale or residual follows a matmul or convolution that stays with the vendor library",
        expectation="one pass over the result instead of one per operator; little gain where the matmul or convolution dominates",
        forbidden="replacing the library's matmul or convolution itself, unless a kernel of equal accuracy has measured faster",
        references=("NVIDIA cuBLASLt documentation, epilogues",),
        veto=fitting.library_computes_products,
    ),
    Strategy(
        name="one-pass-softmax",
        title="Online softmax with a running maximum and rescaled sum in one pass",
        answers=("memory",),
        when=reduces,
        applies="softmax, log-softmax or log-sum-exp reads rows that do not stay in cache between passes",
        expectation="two reads of each row instead of three; up to 1.3x where rows come from memory every time",
        forbidden="rows that fit in registers or shared memory, which are already read only once",
        references=("Milakov and Gimelshein, arXiv 1805.02867",),
        needs=r"softmax|logsumexp|amax|\bexp\b",
        veto=fitting.rows_exceed_fast_memory,
    ),
    Strategy(
        name="row-cache",
        title="Keep the row in registers, shared memory or cache between passes",
        answers=("memory", "latency"),
        when=far_from_floor,
        applies="an operator makes several passes over a row that fits in the fast memory of one worker",
        expectation="no memory traffic in later passes, so each row is read only once",
        forbidden="rows that exceed the fast memory, or take so much of it that occupancy falls below two blocks",
        references=("arXiv 2603.02637",),
        veto=fitting.every(no_reuse, fitting.rows_fit_fast_memory),
    ),
    Strategy(
        name="vectorise",
        title="Wide loads and vectorised math functions",
        answers=("memory", "compute", "latency"),
        when=far_from_floor,
        applies="contiguous, aligned data is read one element at a time, or a transcendental function is evaluated element by element",
        expectation="fewer instructions per byte; 1.1 to 2x where instructions, not memory, are the bottleneck",
        forbidden="operands with differing strides or without 16-byte alignment, which keep a scalar path",
        references=("NVIDIA CUDA C++ Best Practices Guide, memory coalescing",),
        cures=("scalar-access",),
    ),
    Strategy(
        name="parallel-split",
        title="Split a few long rows across several workers",
        answers=("occupancy", "latency"),
        when=far_from_floor,
        applies="there are fewer rows than threads or SMs, and each row has about 8,192 elements or more",
        expectation="a speed-up of up to the number of idle workers, minus the cost of a small second reduction",
        forbidden="two or more rows per SM, or rows of fewer than about 4,096 elements, where the second step costs more than it saves",
        references=("CUB device reduction",),
        cures=("few-blocks",),
        veto=fitting.long_rows,
    ),
    Strategy(
        name="non-temporal-stores",
        title="Stores that bypass the caches",
        answers=("memory", "latency"),
        when=far_from_floor,
        applies="an output larger than the last-level cache is written once and not read again by the same kernel",
        expectation="no read for ownership, which is up to a third of a copy-like kernel's traffic",
        forbidden="outputs that the next operator would still find in cache",
        references=("Intel optimisation manual, non-temporal stores",),
        veto=fitting.every(fitting.outputs_exceed_cache, fitting.quiet_memory),
    ),
    Strategy(
        name="cuda-graph",
        title="Replay a call's launches as one CUDA graph",
        answers=("launch", "latency"),
        when=_many_small_launches,
        applies="the device waits for the host between launches, and shapes are the same in every call",
        expectation="no device time lost waiting for launches: 1.2 to 8x where launches dominate, nothing where the device never waits",
        forbidden="host code that depends on data, random numbers that must change between replays, host synchronisation, changing shapes; large "
        "inputs at new addresses, which are copied in every call",
        references=("NVIDIA CUDA programming guide, CUDA graphs",),
        veto=fitting.every(_no_graph, fitting.host_waits, fitting.gaps_between),
        devices=("cuda",),
    ),
    Strategy(
        name="channels-last",
        title="Keep images in the channels-last layout",
        answers=("memory", "compute"),
        when=multiplies,
        applies="several convolutions run back to back and the library has faster channels-last kernels",
        expectation="1.1 to 1.5x on convolutions that the library would otherwise transpose internally; possibly a loss elsewhere",
        forbidden="a single convolution shorter than about 20 us, where converting the layout costs more than it saves",
        references=("PyTorch documentation, channels last memory format",),
        needs=r"conv|pool",
        veto=fitting.library_computes_products,
    ),
    Strategy(
        name="leave-to-library",
        title="Hand a group back to PyTorch and its libraries",
        answers=("memory", "compute", "latency", "occupancy", "launch", "defect"),
        when=always,
        applies="a custom kernel is wrong, or has measured slower than the operators it replaces",
        expectation="the speed of the library's operators for this group, and their correctness",
        forbidden="unmeasured groups, since a guess that the library is faster is not a measurement",
        references=("arXiv 2603.02637",),
        mends=True,
        veto=fitting.other_kernels,
    ),
    Strategy(
        name="own-pool",
        title="Pooling in a custom kernel",
        answers=("memory", "launch"),
        when=far_from_floor,
        applies="a maximum or mean is taken over windows that overlap, are padded or are dilated",
        expectation="no separate passes for the pointwise operators around the pool; each input read from memory once",
        forbidden="expensive functions ahead of overlapping windows, where they would be recomputed for every window",
        references=("PyTorch documentation, pooling layers",),
        needs=r"pool",
    ),
    Strategy(
        name="own-depthwise",
        title="Depthwise convolution in a custom kernel",
        answers=("memory", "compute", "launch"),
        when=far_from_floor,
        applies="each channel is convolved separately, which leaves no product large enough for a matrix unit",
        expectation="a memory-bound kernel: each input read once, no separate passes for the pointwise operators around it",
        forbidden="expensive functions ahead of overlapping windows, where they would be recomputed for every window",
        references=("Howard et al., arXiv 1704.04861",),
        needs=r"conv",
        veto=fitting.depthwise,
    ),
    Strategy(
        name="own-scan",
        title="Cumulative sums and products in a custom kernel",
        answers=("memory", "launch"),
        when=far_from_floor,
        applies="a cumulative sum or product runs along an axis, from either end, possibly masked before or scaled after",
        expectation="a memory-bound kernel: each element read and written once, no flips or shifted copies around the scan",
        forbidden="scans down fewer than about 4,000 strided columns, which leave too few threads to hide load latency",
        references=("Merrill and Garland, Single-pass Parallel Prefix Scan with Decoupled Look-back, NVR-2016-002",),
        needs=r"cum|scan|flip",
    ),
    Strategy(
        name="own-order",
        title="Row sorting and top-k in a custom kernel",
        answers=("memory", "launch"),
        when=far_from_floor,
        applies="rows of up to 2048 elements are sorted along the last axis, or a few of the largest elements of rows of any length are selected",
        expectation="each element read once, and written once if all are sorted; no separate passes for the pointwise operators around it; a "
        "selection in one or two passes instead of the library's four or more",
        forbidden="full sorts of rows of more than 2048 elements, where the bytes moved by the library's radix sort cost less than the steps of a "
        "sorting network in shared memory",
        references=("Batcher, Sorting networks and their applications, AFIPS 1968",),
        needs=r"sort|topk|kthvalue|median|\bmax\b|argm|unique",
        veto=fitting.sorted_rows,
    ),
    Strategy(
        name="atomic-sums",
        title="Scatter terms atomically as they are computed",
        answers=("memory", "launch"),
        when=far_from_floor,
        applies="sums, maxima or minima are accumulated at an index, and their terms are computed per element or per row",
        expectation="no write and read-back of the terms: each is accumulated into its element of the result as soon as it is computed",
        forbidden="sums that must be identical in every run; thousands of terms summed into each of a few elements, where atomics contend",
        references=("Fey and Lenssen, Fast graph representation learning with PyTorch Geometric, 2019 (arXiv 1903.02428)",),
        needs=r"index_add|index_put|index_reduce|scatter_add|scatter_reduce|segment|bincount",
    ),
    Strategy(
        name="own-matvec",
        title="Matrix-vector product in a custom kernel",
        answers=("memory", "launch"),
        when=far_from_floor,
        applies="one operand of a product is a single row or column, and the matrix is stored row by row",
        expectation="the time of a single read of the matrix",
        forbidden="a matrix that is not stored row by row, or one smaller than about 1 MB, where the launch costs more than the product",
        references=("Williams, Waterman and Patterson, Roofline, CACM 52(4), 2009",),
        veto=fitting.vectors,
    ),
    Strategy(
        name="persistent-recurrence",
        title="All steps of a recurrent layer in one kernel",
        answers=("launch", "latency"),
        when=far_from_floor,
        applies="a recurrence with a batch of up to about 64 is launched step by step, and every step rereads the recurrent weights",
        expectation="one exchange of the state a step, about a microsecond through L2, less in a cluster; layers overlap: 2 to 8x over the library",
        forbidden="weights that do not fit in the registers of all SMs together; batches beyond about 64, whose matmuls fill the device",
        references=("Diamos et al., Persistent RNNs, ICML 2016", "Appleyard, Kocisky and Blunsom, arXiv 1604.01946"),
        devices=("cuda",),
        needs=r"lstm|gru|rnn|\bsigmoid\b|\btanh\b",
        veto=fitting.recurs,
    ),
    Strategy(
        name="persistent-loop",
        title="All passes of a loop over rows in one kernel",
        answers=("launch", "latency"),
        when=far_from_floor,
        applies="forward runs the same small operators in a loop, each pass needs the one before, and no row of the batch reads another one",
        expectation="no launch and no trip through memory between operators: 2 to 10x over the loop in a CUDA graph",
        forbidden="loops whose passes exchange values between rows; weights above about 1 MB; batches above about 8 rows per multiprocessor",
        references=("Diamos et al., Persistent RNNs, ICML 2016",),
        devices=("cuda",),
        veto=fitting.recurs,
    ),
    Strategy(
        name="block-size",
        title="Tune block, tile and chunk sizes",
        answers=("occupancy", "latency", "memory", "compute"),
        when=far_from_floor,
        applies="the structure is right and only the sizes are left to choose, as the last step",
        expectation="1.02 to 1.2x",
        forbidden="programs for which structural strategies are still untried",
        references=("Ansor, arXiv 2006.06762",),
        mends=True,
        finishes=True,
    ),
    *STRUCTURES,
    *CURES,
)

_BY_NAME = {strategy.name: strategy for strategy in CATALOGUE}


def by_name(name: str) -> Strategy | None:
    return _BY_NAME.get(name)
