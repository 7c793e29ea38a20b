import math
import os
from pathlib import Path

import pytest
import torch
from torch.utils import _pytree as pytree

from compiler import DeviceFigures, Options, make_plan, print_program
from tests import kept, precompiled
from tests.unit.compiler.captures import captured
from tests.unit.compiler.loading import load
from verifier.float8 import continuous

HERE = Path(__file__).parent
PREFIX = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n\n"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leaves all but the first case of each parametrized test to `make test-all`, because most cases compile a separate program."""
    met: set[tuple[Path, str, object]] = set()
    for item in items:
        if not isinstance(item, pytest.Function) or not hasattr(item, "callspec") or not item.path.is_relative_to(HERE):
            continue
        test = (item.path, item.originalname, item.cls)
        if test in met:
            item.add_marker(pytest.mark.slow)
        elif item.get_closest_marker("slow") is None:
            met.add(test)


def flat(value):
    return [v for v in pytree.tree_leaves(value) if isinstance(v, torch.Tensor)]


def widened(values):
    return [v.double() if isinstance(v, torch.Tensor) and v.is_floating_point() else v for v in values]


def copied(value):
    return value.clone() if isinstance(value, torch.Tensor) else value


def distance(a: torch.Tensor, b: torch.Tensor) -> float:
    """Returns the largest relative error of `a` with respect to `b` where both are finite; both must be finite at the same positions."""
    a, b = a.double(), b.double()
    if not (math.isfinite(float(a.sum())) and math.isfinite(float(b.sum()))):  # otherwise, all are finite
        assert torch.equal(a.isfinite(), b.isfinite())
        b, a = b[b.isfinite()], a[b.isfinite()]
    if b.numel() == 0:
        return 0.0
    return float((a - b).abs_().div_(b.abs().add_(b.square().mean().sqrt()).clamp_min_(1e-300)).max())


class Compiled:
    """A task with its plan and its program, and the results of both for the same inputs."""

    def __init__(
        self, source: str, mode: str = "train", options: Options | None = None, figures: DeviceFigures | None = None, precision: str = "fp32-strict"
    ):
        self.source, self.task = source, load(source, "task")
        self.dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision, torch.float32)
        torch.manual_seed(0)
        self.model = self.make(self.task["Model"]).train(mode == "train")
        self.inputs = [v.to(self.dtype) if isinstance(v, torch.Tensor) and continuous(v) else v for v in self.task["get_inputs"]()]
        self.mode = mode
        self.capture = captured(self.twin, self.inputs, source, mode, precision)
        self.plan = make_plan(self.capture, source, figures or DeviceFigures.cpu(2), precision)
        self.text = print_program(self.plan, source, options or Options())

    def make(self, cls):
        return cls(*self.task["get_init_inputs"]())._apply(lambda value: value.to(self.dtype) if continuous(value) else value)

    def twin(self):
        """Returns a fresh model: the lambdas of a copy would still call the parts of this one."""
        made = self.make(self.task["Model"]).train(self.mode == "train")
        made.load_state_dict(self.model.state_dict())
        return made

    def check(self, inputs=None) -> None:
        """Compares the program's outputs and state with PyTorch's. The tolerance is a few times PyTorch's own error, or 32 ulp; in 16 bits, barely
        more than that error, or than the effect of rounding the result once."""
        times, least = (6, 32 * 2**-23) if self.dtype == torch.float32 else (1.2, 0.75 * torch.finfo(self.dtype).eps)
        inputs = inputs or self.inputs
        program = self.make(load(self.text, "program")["ModelNew"]).train(self.mode == "train")
        program.load_state_dict(self.model.state_dict())
        before = [v.clone() for v in flat(inputs)]
        oracle, eager = self.twin().double(), self.twin()
        changes = bool(self.capture.graph.mutated_inputs)
        exact, own, given = (pytree.tree_map(copied, inputs) if changes else inputs for _ in range(3))
        exact = widened(exact)
        with torch.no_grad():
            expected, reference, got = oracle(*exact), eager(*own), program(*given)
            again = program(*given) if not self.capture.graph.mutations and not changes else got
        assert pytree.tree_structure(got) == pytree.tree_structure(reference)
        state = [(program.state_dict()[k], v, oracle.state_dict()[k]) for k, v in eager.state_dict().items()]
        state += zip(flat(given), flat(own), flat(exact), strict=True) if changes else ()
        for a, b, precise in [*zip(flat(got), flat(reference), flat(expected), strict=True), *state]:
            assert a.shape == b.shape and a.dtype == b.dtype
            if a.is_floating_point():
                assert distance(a, precise) <= max(times * distance(b, precise), least), (distance(a, precise), distance(b, precise))
            else:
                assert torch.equal(a, b)
        assert all(torch.equal(a, b) or math.isnan(float(b.double().sum())) for a, b in zip(flat(inputs), before, strict=True))
        assert all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(flat(again), flat(got), strict=True))

    @property
    def own(self) -> list[str]:
        return [group.title for group in self.plan.own]


@pytest.fixture(scope="session", autouse=True)
def build_folder():
    """Keeps what programs build for the next run: each library is named by the hash of its source, and this folder by the compiler."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STITCH_BUILD_DIR", str(kept.folder("libraries-" + kept.compiler())))
        patch.setenv("CPATH", str(precompiled.folder()), prepend=os.pathsep)
        yield
    kept.drop_unused()


@pytest.fixture(scope="session", autouse=True)
def one_thread_of_pytorch():
    """Limits PyTorch to one thread: several workers share the processors, and the tensors here are small. Programs use the threads of a separate
    OpenMP runtime."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def compiled():
    return Compiled


@pytest.fixture
def task():
    """Returns a task's source, given the body of forward, its inputs, and (optionally) lines for the constructor."""

    def make(body: str, inputs: str, init: str = "pass", arguments: str = "x") -> str:
        lines = "\n".join(f"        {line}" for line in body.splitlines())
        setup = "\n".join(f"        {line}" for line in init.splitlines())
        return (
            f"{PREFIX}class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n{setup}\n\n"
            f"    def forward(self, {arguments}):\n{lines}\n\n\n"
            f"def get_inputs():\n    return [{inputs}]\n\n\ndef get_init_inputs():\n    return []\n"
        )

    return make
