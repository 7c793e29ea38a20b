"""The tunable parameters of printed programs: every value gives a correct program, and each style of kernel has at least two such parameters."""

import random
import shutil
import subprocess

import pytest

from compiler import DeviceFigures, Options, print_program
from compiler.planning.knobs import numbers, with_numbers

NVCC = shutil.which("nvcc")
FEW_LONG_ROWS = ("return torch.softmax(x, -1)", "torch.randn(3, 40000)")
STYLES = {  # style: body of forward, inputs
    "elements": ("return torch.tanh(x) * 0.5 + x", "torch.randn(300, 1000)"),
    "rows": ("return torch.softmax(x * 0.5, dim=-1)", "torch.randn(300, 1300)"),
    "lanes": ("return x.amax(1) + x.sum(1)", "torch.randn(64, 12, 700)"),
    "split": FEW_LONG_ROWS,
    "scan": ("return torch.cumsum(x, -1) * 2", "torch.randn(64, 5000)"),
}


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("figures", [DeviceFigures.cpu(4), DeviceFigures.h200()], ids=["cpu", "cuda"])
def test_every_style_has_numbers_and_each_value_prints_another_program(compiled, task, style, figures):
    found = compiled(task(*STYLES[style]), figures=figures)
    options = Options().with_strategy("parallel-split") if style == "split" else Options()
    known = numbers(found.plan, found.source, options)
    assert len(known) >= 2 and all(n.value in n.values and len(n.values) > 1 for n in known)
    if figures.kind == "cuda" and not any(group.family for group in found.plan.own):  # a family's kernel has its own parameters
        assert len(known) >= 3
    base = print_program(found.plan, found.source, options)
    for number in known:
        texts = {print_program(found.plan, found.source, with_numbers(options, known, {number.name: value})) for value in number.values}
        assert len(texts) >= 2 and base in texts, number


@pytest.mark.parametrize("style", [style if style == "rows" else pytest.param(style, marks=pytest.mark.slow) for style in STYLES])
def test_extreme_and_random_values_are_correct_on_the_cpu(compiled, task, style):
    source = task(*STYLES[style])
    found = compiled(source, figures=DeviceFigures.cpu(4))
    options = Options().with_strategy("parallel-split") if style == "split" else Options().with_strategy("non-temporal-stores")
    known = numbers(found.plan, source, options)
    picks = random.Random(style)
    wanted = [
        {n.name: n.values[0] for n in known},
        {n.name: n.values[-1] for n in known},
        *({n.name: picks.choice(n.values) for n in known} for _ in range(2)),
    ]
    for values in wanted:
        found.text = print_program(found.plan, source, with_numbers(options, known, values))
        found.check()


def test_a_name_or_value_that_the_program_does_not_have(compiled, task):
    found = compiled(task(*STYLES["rows"]), figures=DeviceFigures.h200())
    known = numbers(found.plan, found.source, Options())
    assert with_numbers(Options(), known, {"other.block": 128}) is None
    assert with_numbers(Options(), known, {known[0].name: 7}) is None


def test_kernels_that_are_alike_change_together(compiled, task):
    body = "for _ in range(4):\n    x = torch.softmax(x @ self.weight, dim=-1) * 2\nreturn x"
    found = compiled(task(body, "torch.randn(64, 256)", "self.weight = nn.Parameter(torch.randn(256, 256))"), figures=DeviceFigures.h200())
    known = numbers(found.plan, found.source, Options())
    shared = next((n for n in known if len(n.groups) > 1), None)
    assert shared is not None
    options = with_numbers(Options(), known, {shared.name: next(v for v in shared.values if v != shared.value)})
    text = print_program(found.plan, found.source, options)
    assert text.count("__global__") == found.text.count("__global__")


@pytest.mark.skipif(not NVCC, reason="nvcc is not installed")
@pytest.mark.parametrize("style", STYLES)
def test_values_build_for_the_gpu(compiled, task, style, tmp_path):
    source = task(*STYLES[style])
    found = compiled(source, figures=DeviceFigures.h200())
    options = Options().with_strategy("parallel-split") if style == "split" else Options()
    known = numbers(found.plan, source, options)
    picks = random.Random(style)
    choices = [{n.name: n.values[0] for n in known}, {n.name: n.values[-1] for n in known}, {n.name: picks.choice(n.values) for n in known}]
    unit = []
    for number, values in enumerate(choices):
        text = print_program(found.plan, source, with_numbers(options, known, values))
        unit.append(f"namespace variant{number} {{\n" + text.split('SOURCE = r"""')[1].split('"""')[0].replace('extern "C" ', "") + "\n}")
    joined = "#include <cmath>\n" + "\n".join(part.replace("#include <cmath>", "") for part in unit)
    (tmp_path / "unit.cu").write_text(joined)
    command = [NVCC, "-arch=sm_90", "-std=c++17", "-cubin", str(tmp_path / "unit.cu"), "-o", str(tmp_path / "unit.cubin")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_values_have_no_effect_on_programs_without_kernels(compiled, task):
    found = compiled(task("return x @ x.t()", "torch.randn(64, 64)"))
    assert numbers(found.plan, found.source, Options()) == []
