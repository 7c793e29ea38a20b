"""Precision policies, backward passes, the fp64 oracle and every baseline on a real GPU. Takes under three minutes, most of which is torch.compile's
max-autotune."""

import asyncio
import dataclasses
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "integration" / "verifier"))
from semantics_bench import LIMITS, Semantics, task  # noqa: E402

from verifier.client import Verifier  # noqa: E402
from verifier.devices import cuda_driver  # noqa: E402
from verifier.jobs import VerifyJob  # noqa: E402
from verifier.limits import GIB  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(cuda_driver.driver() is None, reason=f"no CUDA device: {cuda_driver.why_no_driver()}"),
]

PRODUCT = task("return x @ self.w", "torch.randn(512, 4096)", init="self.w = nn.Parameter(torch.randn(4096, 512))")
CONVOLUTION = task("return F.conv2d(x, self.w)", "torch.rand(8, 128, 32, 32)", init="self.w = nn.Parameter(torch.randn(128, 128, 3, 3) / 34)")
TF32 = "(torch.set_float32_matmul_precision('high'), x @ self.w)[1]"
CAT3 = "cat3(x, self.w)"
CAT3_HEAD = '''

def cat3(a, b):
    """fp32 emulated by three TF32 products over concatenated operands: the tensor cores' own accumulation truncates."""
    high = lambda t: ((t.contiguous().view(torch.int32) + 0x1000) & -0x2000).view(torch.float32)
    ah, bh = high(a), high(b)
    torch.set_float32_matmul_precision('high')
    try:
        return torch.cat([ah, a - ah, ah], 1) @ torch.cat([bh, bh, b - bh], 0)
    finally:
        torch.set_float32_matmul_precision('highest')


class ModelNew('''
BF16 = "(x.bfloat16() @ self.w.bfloat16()).to(x.dtype)"
FP16 = "(x.half() @ self.w.half()).to(x.dtype)"
SEQUENTIAL = "sum_one_by_one(x, self.w)"
SEQUENTIAL_HEAD = """

def sum_one_by_one(a, b):
    acc = a.new_zeros(a.shape[0], b.shape[1])
    for k in range(a.shape[1]):
        acc.addcmul_(a[:, k : k + 1], b[k : k + 1])
    return acc


class ModelNew("""


@pytest.fixture(scope="module")
def semantics(tmp_path_factory):
    semantics = Semantics(tmp_path_factory.mktemp("semantics"), "cuda:0", dataclasses.replace(LIMITS, memory=16 * GIB))
    yield semantics
    semantics.close()


def product(semantics, expression, precision, head=""):
    program = PRODUCT.replace("class Model(", "class ModelNew(").replace("x @ self.w", expression)
    return semantics.judge(program.replace("\n\n\nclass ModelNew(", head) if head else program, PRODUCT, precision=precision)


@pytest.mark.parametrize("precision", ["fp32-strict", "tf32", "bf16", "fp16"])
def test_the_task_itself_is_right_under_every_policy(semantics, precision):
    outcome = semantics.same(PRODUCT, precision=precision)
    assert not outcome.wrong, outcome.wrong
    assert outcome.stage.expectations.place() == "cuda:0"
    error = outcome["task inputs 1"].error
    low, high = {"fp32-strict": (0, 2e-5), "tf32": (1e-4, 1e-2), "bf16": (1e-3, 0.1), "fp16": (1e-4, 0.05)}[precision]
    assert low <= error <= high  # the policy was applied


@pytest.mark.parametrize(
    ("expression", "head", "precision", "right"),
    [
        (TF32, "", "fp32-strict", False),
        (CAT3, CAT3_HEAD, "fp32-strict", False),
        (FP16, "", "fp32-strict", False),
        (SEQUENTIAL, SEQUENTIAL_HEAD, "fp32-strict", True),
        (TF32, "", "tf32", True),
        (BF16, "", "tf32", False),
        (BF16, "", "bf16", True),
    ],
    ids=["tf32 is not fp32", "cat3 is not fp32", "fp16 is not fp32", "a sequential sum is fp32", "tf32 is tf32", "bf16 is not tf32", "bf16 is bf16"],
)
def test_programs_under_a_policy(semantics, expression, head, precision, right):
    outcome = product(semantics, expression, precision, head)
    assert bool(outcome.wrong) != right, outcome.wrong or [(trial.name, trial.error, trial.bound) for trial in outcome.trials]


def test_fp64_on_the_cpu_judges_alike(semantics, monkeypatch):
    from verifier.judge.session import ReferenceSession

    load = ReferenceSession.load

    def on_cpu(self, seed):
        load(self, seed)
        self.oracle_place = "cpu"  # as if the device had been too small

    monkeypatch.setattr(ReferenceSession, "load", on_cpu)
    outcome = semantics.same(CONVOLUTION)
    assert not outcome.wrong, outcome.wrong
    assert outcome.stage.expectations.place() == "cpu"
    assert semantics.changed(CONVOLUTION, "F.conv2d(x, self.w)", "F.conv2d(x.half(), self.w.half()).float()").wrong


def test_admission_measures_memory(semantics):
    admission = semantics.admit(CONVOLUTION)
    assert admission.ok and admission.flags == [] and admission.oracle == "cuda:0"
    assert admission.memory_bytes > 3 * 8 * 128 * 32 * 32 * 4


def test_gradients(semantics):
    outcome = semantics.same(CONVOLUTION, backward=True)
    assert not outcome.wrong and outcome.trials[0].name == "grad task inputs 1", outcome.wrong
    wrong = semantics.changed(CONVOLUTION, "F.conv2d(x, self.w)", "F.conv2d(x, self.w.detach()) + 0 * self.w.sum()", backward=True)
    assert "gradients" in wrong.wrong


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    loop = asyncio.new_event_loop()
    verifier = Verifier("cuda:0", tmp_path_factory.mktemp("policies"))
    yield lambda job: loop.run_until_complete(verifier.run(job))
    loop.run_until_complete(verifier.close())
    loop.close()


MLP = task(
    "return torch.softmax(self.two(torch.relu(self.one(x))), -1)",
    "torch.rand(4096, 1024)",
    init="self.one = nn.Linear(1024, 2048)\nself.two = nn.Linear(2048, 1024)",
)


def test_every_baseline_of_the_full_tier_is_right_and_timed(run):
    report = run(VerifyJob(task_source=MLP, program_source=MLP.replace("class Model(", "class ModelNew("), tier="full", precision="tf32")).report
    assert report.status == "passed", report.message
    names = [comparison.baseline for comparison in report.timing.comparisons]
    # Autotuning may choose a wrong kernel under TF32 on some cards. In that case the report says so, and the mode without autotuning replaces it.
    wrong = "it is wrong, so it is no baseline" in report.reasons.get("compile-max-autotune", "")
    assert names == ["eager", "compile", "compile-reduce-overhead" if wrong else "compile-max-autotune", "cuda-graph"], report.reasons
    assert report.oracle == "cuda:0"


def test_forward_and_backward_are_measured_together(run):
    program = MLP.replace("class Model(", "class ModelNew(")
    forward = run(VerifyJob(task_source=MLP, program_source=program)).report
    both = run(VerifyJob(task_source=MLP, program_source=program, backward=True)).report
    assert forward.status == both.status == "passed", (forward.message, both.message)
    assert both.backward and all(trial.name.startswith(("grad", "timed")) for trial in both.trials)
    assert both.timing.program_ms > 1.5 * forward.timing.program_ms
