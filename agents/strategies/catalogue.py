"""The catalogue: what the built-in compiler carries out, what only a coder can write, and what undoes one named fault."""

from __future__ import annotations

from agents.strategies.cures import CURES, no_reuse
from agents.strategies.strategy import Facts, Strategy
from agents.strategies.structures import STRUCTURES, always, far_from_floor, multiplies, reduces


def _many_small_launches(facts: Facts) -> bool:
    if facts.waits_for_host:
        return True
    if facts.launches is None or facts.program_us is None:
        return facts.bottleneck in ("launch", "latency")
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
        applies="several pointwise operators follow each other and what lies between them is used nowhere else",
        expectation="each fused operator saves a write and a read of its tensor, and a launch",
        forbidden="an intermediate that is an output, or is used by an operator outside the chain, has to be written all the same",
        references=("arXiv 2603.02637", "Jia et al., TASO, SOSP 2019"),
        cures=("split-fusion",),
        cures_when=lambda facts: not facts.reductions,
    ),
    Strategy(
        name="fuse-row-reduction",
        title="Fuse a row reduction with the pointwise operators around it",
        answers=("memory", "launch", "latency"),
        when=lambda facts: facts.reductions is not False,
        applies="a reduction runs over trailing dimensions and its neighbours are pointwise over the same rows",
        expectation="normalisations drop from one pass for each operator to one or two reads and one write",
        forbidden="reductions over leading dimensions, whose rows are not contiguous",
        references=("Welford 1962", "arXiv 1805.02867"),
        cures=("split-fusion",),
        cures_when=lambda facts: bool(facts.reductions),
    ),
    Strategy(
        name="fuse-matmul-tail",
        title="Fuse what follows a matrix product or convolution into one pass",
        answers=("memory", "launch", "latency"),
        when=lambda facts: facts.products is not False,
        applies="bias, activation, scale or residual follow a product that stays with the vendor's library",
        expectation="one pass over the product instead of one for each operator; little where the product dominates",
        forbidden="replacing the library's product itself, unless a kernel of equal accuracy was measured to be faster",
        references=("NVIDIA cuBLASLt documentation, epilogues",),
    ),
    Strategy(
        name="one-pass-softmax",
        title="Running maximum and rescaled sum in one pass",
        answers=("memory",),
        when=reduces,
        applies="softmax, log-softmax or a log-sum-exp reads rows that do not stay in cache between the passes",
        expectation="two reads of the row instead of three; up to 1.3x where the row comes from memory each time",
        forbidden="rows that fit into registers or shared memory gain nothing: there the row is read once already",
        references=("Milakov and Gimelshein, arXiv 1805.02867",),
        needs=r"softmax|logsumexp|amax|\bexp\b",
    ),
    Strategy(
        name="row-cache",
        title="Keep the row in registers, shared memory or cache between the passes",
        answers=("memory", "latency"),
        when=far_from_floor,
        applies="an operator with several passes over a row that fits into the fast memory of one worker",
        expectation="later passes cost no memory traffic: reads fall to one",
        forbidden="rows larger than the fast memory, or so large a share of it that occupancy falls below two blocks",
        references=("arXiv 2603.02637",),
        veto=no_reuse,
    ),
    Strategy(
        name="vectorise",
        title="Wide loads, and vectorised mathematics",
        answers=("memory", "compute", "latency"),
        when=far_from_floor,
        applies="contiguous aligned data is read one element at a time, or a transcendental function runs element by element",
        expectation="fewer instructions a byte; 1.1 to 2x where instructions, not memory, set the pace",
        forbidden="operands with different strides or without 16-byte alignment keep a scalar path",
        references=("NVIDIA CUDA C++ Best Practices Guide, memory coalescing",),
        cures=("scalar-access",),
    ),
    Strategy(
        name="parallel-split",
        title="Split few long rows over several workers",
        answers=("occupancy", "latency"),
        when=far_from_floor,
        applies="there are fewer rows than threads or multiprocessors, and rows have some 8,192 elements or more",
        expectation="up to the number of workers that stood idle, less a second small reduction",
        forbidden="as many rows as two a multiprocessor, or rows of less than about 4,096 elements: the second step costs more than it brings",
        references=("CUB device reduction",),
        cures=("few-blocks",),
    ),
    Strategy(
        name="non-temporal-stores",
        title="Write past the caches",
        answers=("memory", "latency"),
        when=far_from_floor,
        applies="an output larger than the last-level cache is written once and not read again by this kernel",
        expectation="saves the read for ownership: up to a third of the traffic of a copy-like kernel",
        forbidden="outputs that the next operator reads while they would still be in cache",
        references=("Intel optimisation manual, non-temporal stores",),
    ),
    Strategy(
        name="cuda-graph",
        title="Replay the launches of a call as one CUDA graph",
        answers=("launch", "latency"),
        when=_many_small_launches,
        applies="the device waits for the host before or between launches, with the same shapes every time",
        expectation="removes what the device waits for launches: 1.2 to 8x where launches dominate, nothing where it never waits",
        forbidden="data-dependent control flow, random numbers that must change, host synchronisation, changing shapes",
        references=("NVIDIA CUDA programming guide, CUDA graphs",),
        veto=_no_graph,
        devices=("cuda",),
    ),
    Strategy(
        name="channels-last",
        title="Keep images in channels-last layout",
        answers=("memory", "compute"),
        when=multiplies,
        applies="several convolutions follow each other and the library has faster kernels for channels-last",
        expectation="1.1 to 1.5x on convolutions that the library would transpose inside; may lose elsewhere",
        forbidden="a single convolution of less than about 20 us, whose conversion costs more than it saves",
        references=("PyTorch documentation, channels last memory format",),
        needs=r"conv|pool",
    ),
    Strategy(
        name="leave-to-library",
        title="Give a group back to PyTorch and its libraries",
        answers=("memory", "compute", "latency", "occupancy", "launch", "defect"),
        when=always,
        applies="an own kernel is wrong, or was measured to be slower than the operators it replaces",
        expectation="the time of the library's operators for this group, and its correctness",
        forbidden="without a measurement: a guess that the library is faster is not one",
        references=("arXiv 2603.02637",),
    ),
    Strategy(
        name="own-pool",
        title="A pool over windows as a kernel of one's own",
        answers=("memory", "launch"),
        when=far_from_floor,
        applies="a maximum or mean runs over windows that overlap, are padded or dilated",
        expectation="the pointwise operators around the pool cost no pass of their own; each input is read from memory once",
        forbidden="dear functions before windows that overlap: they would be computed again for each window",
        references=("PyTorch documentation, pooling layers",),
        needs=r"pool",
    ),
    Strategy(
        name="own-depthwise",
        title="A convolution of each channel by itself as a kernel of one's own",
        answers=("memory", "compute", "launch"),
        when=far_from_floor,
        applies="each channel is convolved by itself, so that there is no product large enough for a matrix unit",
        expectation="bound by memory: each input is read once, pointwise operators around it cost no pass of their own",
        forbidden="dear functions before windows that overlap: they would be computed again for each window",
        references=("Howard et al., arXiv 1704.04861",),
        needs=r"conv",
    ),
    Strategy(
        name="own-scan",
        title="Running sums and products as a kernel of one's own",
        answers=("memory", "launch"),
        when=far_from_floor,
        applies="a sum or a product runs along an axis, from either end, masked before or scaled afterwards",
        expectation="bound by memory: each element is read and written once; flips and shifted copies around it are gone",
        forbidden="fewer than some 4,000 columns that lie across memory: there are too few threads to hide a load",
        references=("Merrill and Garland, Single-pass Parallel Prefix Scan with Decoupled Look-back, NVR-2016-002",),
        needs=r"cum|scan|flip",
    ),
    Strategy(
        name="own-order",
        title="Sorted rows and their largest elements as a kernel of one's own",
        answers=("memory", "launch"),
        when=far_from_floor,
        applies="rows of up to 2048 elements are sorted along the last axis, or their largest taken, and either values or places are read",
        expectation="each element is read and written once; the pointwise operators around the order cost no pass of their own",
        forbidden="rows of more than 2048 elements, where the library's radix sort moves fewer bytes than a network in shared memory makes steps",
        references=("Batcher, Sorting networks and their applications, AFIPS 1968",),
        needs=r"sort|topk|kthvalue|median|\bmax\b|argm|unique",
    ),
    Strategy(
        name="own-matvec",
        title="A product with a vector as a kernel of one's own",
        answers=("memory", "launch"),
        when=far_from_floor,
        applies="one side of a product is a single row or column, and the matrix lies row by row",
        expectation="the time of one read of the matrix",
        forbidden="a matrix that lies across memory, or one of less than about 1 MB: a launch costs more than the product",
        references=("Williams, Waterman and Patterson, Roofline, CACM 52(4), 2009",),
    ),
    Strategy(
        name="persistent-recurrence",
        title="All steps of a recurrent layer in one kernel",
        answers=("launch", "latency"),
        when=far_from_floor,
        applies="a recurrence at a batch of up to about 64 is launched step by step, and every step reads the recurrent weights again",
        expectation="a step takes one trip through the second-level cache, about a microsecond; stacked layers overlap: 2 to 8x over the library",
        forbidden="weights that do not fit the registers of all multiprocessors; batches beyond about 64, whose products fill the device",
        references=("Diamos et al., Persistent RNNs, ICML 2016", "Appleyard, Kocisky and Blunsom, arXiv 1604.01946"),
        devices=("cuda",),
        needs=r"lstm|gru|rnn|sigmoid|tanh",
    ),
    Strategy(
        name="block-size",
        title="Tune block, tile and chunk sizes",
        answers=("occupancy", "latency", "memory", "compute"),
        when=far_from_floor,
        applies="the structure is right and only numbers are left to choose; it comes last",
        expectation="1.02 to 1.2x",
        forbidden="before structural strategies have been tried",
        references=("Ansor, arXiv 2006.06762",),
    ),
    *STRUCTURES,
    *CURES,
)

_BY_NAME = {strategy.name: strategy for strategy in CATALOGUE}


def by_name(name: str) -> Strategy | None:
    return _BY_NAME.get(name)
