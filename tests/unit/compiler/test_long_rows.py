"""Reductions whose rows are long, few or strided, as printed for the GPU: the shared memory of a cluster, parts of rows in many blocks, several
threads per row. The emulator runs them at small sizes, with every number of blocks and threads."""

import pytest

from compiler import DeviceFigures, Options, print_program
from compiler.kernel import shape
from compiler.planning.knobs import numbers
from tests.emulator import as_cpp

ROWS = {
    "softmax": "return torch.softmax(x, 1)",
    "log-softmax": "return F.log_softmax(x * 2, 1)",
    "layer-norm": "return F.layer_norm(x + 30, (x.shape[1],))",
    "norm": "return x / torch.linalg.vector_norm(x, dim=1, keepdim=True)",
    "moments": "return x.var(1), x.mean(1), torch.logsumexp(x, 1)",
}
H200 = DeviceFigures.h200()


@pytest.fixture
def small(monkeypatch):
    """Returns a device with two multiprocessors on which rows of 100 elements are long."""
    monkeypatch.setattr(shape, "IN_REGISTERS", 100)
    return H200.model_copy(update={"units": 2, "unit_cache_bytes": 40 << 10})


def emulated(found, options=None):
    found.text = as_cpp(print_program(found.plan, found.source, options or Options()))
    found.check()


def some(names, quick):
    return [pytest.param(name, marks=() if name in quick else pytest.mark.slow) for name in names]


@pytest.mark.parametrize("name", some(ROWS, ("softmax",)))
def test_rows_in_the_shared_memory_of_a_cluster(compiled, task, small, name):
    found = compiled(task(ROWS[name], f"torch.randn(3, {2600 if name == 'softmax' else 1001})"), figures=small)
    group = found.plan.own[0].id
    for blocks, threads in ((1, 128), (2, 64), (8, 32)):
        options = Options().with_knob("cluster", blocks, group).with_knob("block", threads, group)
        text = print_program(found.plan, found.source, options)
        assert ("__cluster_dims__" in text) is (blocks > 1) and "held[]" in text
        emulated(found, options)


@pytest.mark.parametrize("name", some(ROWS, ("moments",)))
def test_rows_shared_by_many_blocks(compiled, task, name):
    found = compiled(task(ROWS[name], "torch.randn(2, 20001)"), figures=H200)
    group = found.plan.own[0].id
    assert "scratch" in found.text
    for chunks, threads in ((1, 64), (7, 128)):
        emulated(found, Options().with_knob("row-blocks", chunks, group).with_knob("block", threads, group))


def test_variance_of_long_rows_takes_one_pass(compiled, task):
    found = compiled(task("return F.layer_norm(x + 1000, (40000,))", "torch.randn(2, 40000)"), figures=H200)
    assert found.text.count("__global__") == 2 and "squares_raw" in found.text
    emulated(found, Options().with_knob("row-blocks", 3, found.plan.own[0].id))


def test_a_constant_row_has_no_negative_variance_and_nan_stays(compiled, task):
    rows = "torch.cat([torch.full((1, 20000), 0.1), torch.full((1, 20000), float('nan')), torch.randn(1, 20000)])"
    found = compiled(task("return F.layer_norm(x, (20000,)), torch.sqrt(x.var(1) + 1e-9)", rows), figures=H200)
    emulated(found, Options().with_knob("row-blocks", 2, found.plan.own[0].id))


ACROSS = {
    "mean": "return x.mean(1)",
    "softmax": "return F.softmax(x, 1) * 2",
    "rms": "return x / torch.sqrt((x**2).mean(1, keepdim=True) + 1e-5)",
    "max": "return x.amax(1) + 1",
    "batch-norm": "return F.batch_norm(x, None, None, training=True)",
}


@pytest.mark.parametrize("name", some(ACROSS, ("softmax", "mean")))
@pytest.mark.parametrize("length", [pytest.param(24, marks=pytest.mark.slow), 130])
def test_rows_across_memory(compiled, task, name, length):
    found = compiled(task(ACROSS[name], f"torch.randn(1, {length}, 70)" if name != "batch-norm" else f"torch.randn({length}, 70)"), figures=H200)
    known = {number.name.rpartition(".")[2]: number for number in numbers(found.plan, found.source, Options())}
    group = found.plan.own[-1].id
    for groups, block in ((1, 64), (2, 64), (8, 256)):
        assert groups in known["groups"].values
        emulated(found, Options().with_knob("groups", groups, group).with_knob("block", block, group))


PLACES = {
    "across": ("return torch.argmax(x, dim=1)", "torch.randint(0, 40, (2, 130, 70)).float()"),
    "row": ("return torch.argmin(x * 2, dim=-1, keepdim=True), x.sum(-1, keepdim=True)", "torch.randint(-9, 9, (200, 33)).float()"),
    "long": ("return x.argmax(1)", "torch.randint(-9, 9, (3, 3000)).float()"),
    "all": ("return torch.argmax(x)", "torch.randn(20, 30)"),
    "nan": ("return torch.argmin(x, 1)", "torch.where(torch.rand(64, 50) > 0.98, float('nan'), torch.rand(64, 50))"),
    "nothing": ("return torch.argmax(x, 1)", "torch.full((64, 50), -float('inf'))"),
}


@pytest.mark.parametrize("name", some(PLACES, ("across",)))
def test_places_of_the_largest_and_least(compiled, task, name):
    body, inputs = PLACES[name]
    found = compiled(task(body, inputs))
    assert all(group.space == "own kernel" for group in found.plan.groups)
    found.check()
    found = compiled(task(body, inputs), figures=H200)
    group = found.plan.own[0].id
    for options in (Options(), Options().with_knob("groups", 8, group).with_knob("block", 256, group)):
        emulated(found, options)


def test_one_kernel_finds_the_place_and_the_value(compiled, task):
    found = compiled(task("return torch.argmax(x, 1), x.amax(1)", "torch.randn(64, 50)"), figures=H200)
    assert len(found.plan.own) == 1


def test_shared_memory_is_asked_for_with_what_reductions_add(compiled, task):
    """A launch failed on an H200: 48 KiB for the row plus the blocks' partial results exceed the shared memory that a launch gets without requesting
    it."""
    found = compiled(task("return torch.softmax(x, 1)", "torch.randn(600, 70000)"), figures=H200)
    group = found.plan.own[0].id
    text = print_program(found.plan, found.source, Options().with_knob("cluster", 8, group).with_knob("block", 1024, group))
    assert "1024, 49152, (cudaStream_t)stream>>>" in text
    assert "cudaFuncAttributeMaxDynamicSharedMemorySize, 49152);" in text


@pytest.mark.parametrize("inputs", ["torch.randn(2, 5), torch.randn(5, 2600)", "torch.randn(64, 5), torch.randn(5, 8)"], ids=["long", "short"])
def test_rows_that_are_read_again_are_not_overwritten(compiled, task, small, inputs):
    """The first pass stores tanh(x y); a later pass that computes it again must still find x y."""
    found = compiled(task("h = torch.tanh(x @ y)\nreturn F.log_softmax(h, -1), h", inputs, arguments="x, y"), figures=small)
    group = next(group.id for group in found.plan.own if "softmax" in group.title)
    emulated(found)
    emulated(found, Options().with_knob("row-blocks", 2, group))
