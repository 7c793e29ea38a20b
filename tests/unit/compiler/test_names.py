"""Names in a task that a program also uses: each keeps its own meaning."""

import contextlib
import re
import shutil
import subprocess
from types import SimpleNamespace

import pytest
import torch

from compiler import DeviceFigures, Options, print_program
from compiler.kernel.naming import RESERVED_IN_C, free, kernel_base, parameters
from tests.emulator import as_cpp

PAIRS = ("query, key", "value, state", "stream, scratch", "packed, main", "check, dense", "exact, kernels", "static, graph", "held, ctypes")


@pytest.fixture
def a_device(monkeypatch):
    """Provides streams and graphs that do nothing: recorded work is computed immediately."""
    stream = SimpleNamespace(wait_stream=lambda other: None, cuda_stream=0)
    for name, value in {
        "current_stream": lambda device=None: stream, "Stream": lambda device=None: stream, "stream": lambda stream: contextlib.nullcontext(),
        "CUDAGraph": lambda: SimpleNamespace(replay=lambda: None), "graph": lambda graph: contextlib.nullcontext(),
    }.items():  # fmt: skip
        monkeypatch.setattr(torch.cuda, name, value)


def body(arguments: str) -> str:
    one, other = arguments.split(", ")
    return f"return torch.softmax({one} @ self.weight, -1) * {other} + torch.relu({other})"


INIT = "self.weight = nn.Parameter(torch.randn(32, 32))"
INPUTS = "torch.randn(8, 32), torch.randn(8, 32)"


@pytest.mark.parametrize("arguments", PAIRS)
def test_parameters_of_forward(compiled, task, arguments):
    compiled(task(body(arguments), INPUTS, INIT, arguments=arguments)).check()


@pytest.mark.parametrize("arguments", PAIRS)
@pytest.mark.parametrize("strategies", [[], ["cuda-graph"], ["cuda-graph", "overlap-streams"]], ids=["plain", "graph", "streams"])
def test_parameters_of_a_recorded_forward(compiled, task, a_device, arguments, strategies):
    found = compiled(task(body(arguments), INPUTS, INIT, arguments=arguments), figures=DeviceFigures.h200())
    options = Options()
    for strategy in strategies:
        options = options.with_strategy(strategy)
    found.text = as_cpp(print_program(found.plan, found.source, options))
    assert ("def record" in found.text) is bool(strategies)
    found.check()


MODULE = """SOURCE, name, pointers = "a task's own", "its name", 3


def check(size):
    return size * pointers


def dense(size):
    return nn.Linear(size, check(size) + len(SOURCE) + len(name))


kernels = [dense(4)]


class Model"""


def test_names_of_the_task_s_module(compiled, task):
    source = task("return torch.relu(self.layer(x)) * 2", "torch.randn(8, 16)", "self.layer, self.first = dense(16), kernels[0]")
    found = compiled(source.replace("class Model", MODULE))
    assert "kernels_ = stitch_build(" in found.text and "def dense_(" in found.text
    found.check()


def test_underscores_until_nobody_has_the_name():
    assert free("key", {"key", "key_"}) == "key__" and free("key", ()) == "key"
    assert parameters(["stream", "x", "stream_"], {"stream"}) == ["stream__", "x", "stream_"]


def test_what_several_operators_of_a_kernel_hand_on_has_names_of_its_own(compiled, task):
    """The graph numbers its operators (`mul_3`), and so does a kernel: each of the two products over `x` has its own memory."""
    found = compiled(task("return x * 2.5, y * 3, y * 4, x * 5.5", "torch.randn(32, 70), torch.randn(9000)", arguments="x, y"))
    assert ["mul", "mul_3"] in [group.operators for group in found.plan.groups]
    found.check()


def test_weights_in_containers_are_read_where_they_are(compiled, task):
    """A numeric key is not an index; modules that remain after slicing a Sequential keep their names but not their indices."""
    init = """full = nn.Sequential(*[nn.Linear(4, 4) for _ in range(4)])
self.late, self.both = nn.Sequential(), full[1:3]
for at in (2, 3):
    self.late.add_module(str(at), full[at])
self.norms = nn.ModuleDict({"0": nn.LayerNorm(4), "batch-norm": nn.BatchNorm1d(4)})
self.scales = nn.ParameterDict({"0": nn.Parameter(torch.randn(4))})
self.old = nn.Module()
self.old.add_module("1", nn.Linear(4, 4))
self.old.register_buffer("shift-by", torch.randn(4))"""
    body = """y = self.norms["0"](self.late(self.both(x))) * self.scales["0"]
return getattr(self.old, "1")(self.norms["batch-norm"](y)) + getattr(self.old, "shift-by")"""
    found = compiled(task(body, "torch.randn(8, 4)", init))
    places = ("self.both[0].weight", "self.late[1].weight", "self.norms['0'].weight", "self.old._buffers['shift-by']")
    assert all(place in found.text for place in places)
    found.check()


@pytest.mark.parametrize(
    ("command", "headers"),
    [
        pytest.param(["g++", "-fsyntax-only"], ("cmath", "cstddef", "algorithm"), id="cpp"),
        pytest.param(
            ["nvcc", "-arch=sm_90", "--ptx", "-Xcudafe", "--error_limit=5000"],
            ("cmath", "cuda_bf16.h", "cuda_fp16.h"),
            id="cuda",
            marks=[pytest.mark.slow, pytest.mark.skipif(not shutil.which("nvcc"), reason="nvcc is not installed")],
        ),
    ],
)
def test_no_kernel_has_the_name_of_a_function_of_the_headers(tmp_path, command, headers):
    """Covers every PyTorch operator, each in a separate kernel."""
    operators = {schema.name.removeprefix("aten::") for schema in torch._C._jit_get_all_schemas() if schema.name.startswith("aten::")}
    lines = [f"#include <{name}>" for name in headers]
    lines += [f'extern "C" int {name}(const float*, float*, void*);' for name in sorted({kernel_base([one]) for one in operators} - RESERVED_IN_C)]
    source = tmp_path / "names.cu"
    source.write_text("\n".join(lines) + "\n")
    done = subprocess.run(
        [*command, *(["-x", "c++"] if command[0] == "g++" else ["-o", "names.ptx"]), str(source)], capture_output=True, text=True, cwd=tmp_path
    )
    taken = [lines[int(line) - 1] for line in re.findall(r"names\.cu[:(](\d+)\)?[:\d]* error", done.stderr)]
    assert not taken and done.returncode == 0, taken or done.stderr


@pytest.mark.parametrize("call", ["torch.erfc(x)", "torch.fmod(x, 0.3)", pytest.param("torch.log2(x)", marks=pytest.mark.slow)])
def test_an_operator_alone_that_the_c_library_has_too(compiled, task, call):
    found = compiled(task(f"return {call}", "torch.rand(2000)"))
    assert found.own
    found.check()
