"""The C++ versions of families' kernels compared with PyTorch: every variant, with tails and prologues; also gates, knobs, and the printed CUDA."""

import pytest

from compiler import DeviceFigures, Options, print_program
from compiler.planning.knobs import numbers
from tests.emulator import as_cpp

POOLS = {
    "max1d": ("F.max_pool1d(x, 8, 1, 4, dilation=3)", (2, 3, 64)),
    "max2d": ("F.max_pool2d(x, (4, 3), 1, 1)", (2, 3, 17, 19)),
    "max2d-ceil": ("F.max_pool2d(x, 3, 2, 1, ceil_mode=True)", (2, 3, 16, 18)),
    "max3d": ("F.max_pool3d(x, 3, 2, 1, dilation=3)", (2, 3, 16, 17, 18)),
    "avg1d": ("F.avg_pool1d(x, 8, 1, 4)", (2, 3, 40)),
    "avg2d": ("F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)", (2, 3, 17, 19)),
    "avg2d-ceil": ("F.avg_pool2d(x, 3, 2, 1, ceil_mode=True)", (2, 3, 16, 18)),
    "avg2d-divisor": ("F.avg_pool2d(x, 3, 1, 0, divisor_override=7)", (2, 3, 9, 9)),
    "avg3d": ("F.avg_pool3d(x, 3, 2, 1)", (2, 3, 9, 10, 11)),
    "adaptive2d": ("F.adaptive_avg_pool2d(x, (3, 5))", (2, 3, 10, 12)),
    "unbatched": ("F.max_pool2d(x, 3, 2)", (3, 17, 19)),
}


@pytest.mark.parametrize("name", POOLS)
def test_pools(compiled, task, name):
    call, shape = POOLS[name]
    found = compiled(task(f"return {call}", f"torch.randn{shape}"))
    assert [group.family for group in found.plan.groups] == ["pool"]
    found.check()


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in ("max3d", "avg2d-ceil") else pytest.mark.slow) for name in POOLS])
def test_every_number_of_a_cuda_pool(compiled, task, name):
    call, shape = POOLS[name]
    source = task(f"return F.relu({call} * 2 + self.w)", f"torch.randn{shape}", "self.w = nn.Parameter(torch.randn(1))")
    found = compiled(source, figures=DeviceFigures.h200())
    known = numbers(found.plan, source, Options())
    for at in range(max(len(number.values) for number in known)):
        options = Options()
        for number in known:
            options = options.with_knob(number.name.rpartition(".")[2], number.values[at % len(number.values)], found.plan.own[0].id)
        found.text = as_cpp(print_program(found.plan, source, options))
        found.check()


def test_tail_and_prologue_join_a_pool(compiled, task):
    body = "y = F.max_pool2d(F.relu(x) * 2, 3, 2, 1)\nz = torch.sigmoid(y * self.w[:, None, None]) + r\nreturn z, y"
    found = compiled(task(body, "torch.randn(2, 3, 18, 20), torch.randn(2, 1, 9, 10)", "self.w = nn.Parameter(torch.randn(3))", "x, r"))
    assert [(group.family, len(group.operators)) for group in found.plan.groups] == [("pool", 6)]
    assert found.text.count('extern "C"') == 1
    found.check()


def test_dear_functions_are_not_computed_for_every_window(compiled, task):
    found = compiled(task("return F.max_pool2d(torch.tanh(x), 3, 1, 1)", "torch.randn(2, 8, 18, 20)"))
    assert [group.family for group in found.plan.groups] == ["", "pool"]
    found.check()


def test_gate_gives_the_anchor_to_the_library_and_keeps_the_tail(compiled, task):
    source = task("return F.relu(F.avg_pool2d(x + 1, 3, 2, 1) * 3 - x.mean())", "torch.randn(2, 3, 33, 35)")
    whole = compiled(source)
    group = next(group for group in whole.plan.groups if group.family)
    for options in (Options().choose("own-pool", group.id, False), Options().with_strategy("leave-to-library", group.id)):
        found = compiled(source, options=options)
        assert "avg_pool2d" in found.text.split("def forward")[1]
        found.check()
    assert "relu" not in compiled(source, options=Options().choose("own-pool", group.id, False)).text.split("def forward")[1].split("kernels.")[0]


def test_equal_kernels_are_shared(compiled, task):
    found = compiled(task("for _ in range(3):\n    x = F.relu(F.max_pool2d(x, 3, 1, 1) * 0.5)\nreturn x", "torch.randn(2, 3, 8, 8)"))
    assert [len(group.operators) for group in found.plan.groups] == [3, 3, 3]
    assert found.text.count('extern "C"') == 1
    found.check()


def test_numbers_of_a_cuda_pool(compiled, task):
    source = task("return F.max_pool2d(x, 4, 1, 1)", "torch.randn(2, 3, 32, 32)")
    found = compiled(source, figures=DeviceFigures.h200())
    assert {number.name.rpartition(".")[2] for number in numbers(found.plan, source, Options())} == {"block", "strip"}
    assert "float best[4]" in found.text and "cudaGetLastError" in found.text


def test_constants_are_made_once_on_the_gpu(compiled, task):
    source = task("return x * torch.tensor([1.0, 2.0, 3.0]) + 1", "torch.randn(1000, 3)")
    found = compiled(source, figures=DeviceFigures.h200())
    assert "torch.tensor([1.0, 2.0, 3.0], dtype=torch.float32, device=device)" in found.text.split("def pack(self, device)")[1]
    assert "self.pack(x.device)" in found.text and "self.packed = None" in found.text
    recorded = compiled(source, figures=DeviceFigures.h200(), options=Options().with_strategy("cuda-graph"))
    assert recorded.text.count("def _apply") == 1 and "self.recorded = None" in recorded.text.split("def _load_from_state_dict")[1]


def test_counters_of_batch_norms_take_one_launch(compiled, task):
    found = compiled(task("return self.b(F.relu(self.a(x)))", "torch.randn(4, 3, 16, 16)", "self.a = nn.BatchNorm2d(3)\nself.b = nn.BatchNorm2d(3)"))
    assert found.text.count("num_batches_tracked") == 2 and "torch._foreach_add_" in found.text
    found.check()


DEPTHWISE = {
    "2d": ("nn.Conv2d(6, 6, 3, padding=1, groups=6)", (2, 6, 9, 11)),
    "2d-by-two": ("nn.Conv2d(5, 5, (3, 5), stride=2, padding=(1, 2), groups=5, bias=False)", (2, 5, 10, 13)),
    "2d-two-each": ("nn.Conv2d(4, 8, 3, groups=4, dilation=2)", (2, 4, 9, 9)),
    "of-one-channel": ("nn.Conv2d(1, 6, 5)", (3, 1, 12, 13)),
    "1d": ("nn.Conv1d(6, 6, 7, padding=3, groups=6)", (2, 6, 30)),
    "3d": ("nn.Conv3d(3, 3, (2, 3, 3), padding=1, groups=3)", (1, 3, 5, 6, 7)),
}


@pytest.mark.parametrize("name", DEPTHWISE)
def test_depthwise_convolutions(compiled, task, name):
    module, shape = DEPTHWISE[name]
    body = "return torch.relu(self.conv(x * 2)) + 1"
    found = compiled(task(body, f"torch.randn{shape}", f"self.conv = {module}"), figures=DeviceFigures.h200())
    assert [group.family for group in found.plan.groups] == ["depthwise"], [group.reason for group in found.plan.groups]
    for strip in (1, 4):
        found.text = as_cpp(print_program(found.plan, found.source, Options().with_knob("strip", strip, found.plan.own[0].id)))
        found.check()


def test_what_is_left_to_the_library_copies_no_constant_from_the_host(compiled, task):
    """Copying from the host is impossible in a call that is recorded into a CUDA graph."""
    source = task(
        "return torch.where(x > 0, x, float('-inf')).clamp(min=-5) @ self.w", "torch.randn(512, 512)", "self.w = nn.Parameter(torch.rand(512, 512))"
    )
    group = next(g for g in compiled(source, figures=DeviceFigures.h200()).plan.own if "where" in g.kinds)
    found = compiled(source, figures=DeviceFigures.h200(), options=Options().with_strategy("leave-to-library", group.id))
    assert "torch.full((), float(" in found.text and "torch.tensor(" not in found.text
    assert "@torch.no_grad()\n    def forward" in found.text, "PyTorch computes a part of it"


def test_a_forward_of_launches_alone_needs_no_guard_against_autograd(compiled, task):
    found = compiled(
        task("return torch.softmax(x * self.w, -1)", "torch.randn(64, 256)", "self.w = nn.Parameter(torch.rand(256))"), figures=DeviceFigures.h200()
    )
    assert "no_grad" not in found.text and "softmax = torch.empty_like(x)" in found.text
