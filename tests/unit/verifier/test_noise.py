"""How far a program may be from fp64 in averages that are rounding noise, and in whatever follows from a decision by rounding."""

import time

import pytest
import torch

from verifier.correctness.bounds import judge, root_mean_square
from verifier.correctness.expectation import Expectations
from verifier.correctness.noise import Inherited, allowance
from verifier.judge.session import Run, Values
from verifier.layout import Spec
from verifier.parties.oracle import Rough, Wide, default_double

SIZE = 48


def noise(seed: int, size: float = 1.0) -> torch.Tensor:
    return size * torch.randn(SIZE, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def off(value: torch.Tensor, exact: torch.Tensor, allowed) -> bool:
    return not judge(value.float(), exact, allowed.limit, allowed.tolerated).ok


def test_a_size_is_measured_without_changing_the_tensor():
    values = noise(1)
    before = values.clone()
    assert root_mean_square(values) == pytest.approx(float(before.square().mean().sqrt())) and torch.equal(values, before)


@pytest.mark.parametrize("exact", [noise(1, 1e-17), torch.zeros(SIZE, dtype=torch.float64)])
@pytest.mark.parametrize("eager", [1e-7, 0.0])
def test_noise_of_any_size_passes_and_a_value_does_not(exact, eager):
    """Noise passes even if the values in fp64 or in eager happen to cancel out completely."""
    size = max(root_mean_square(exact), 1e-300)
    allowed = allowance(noise(2, eager).float(), exact, [1e-9 / size], 0.0, "fp32-strict", decided=True)
    assert allowed.noise
    for sound in (torch.zeros(SIZE), noise(3, 2e-8), noise(4, 5e-7)):
        assert not off(sound, exact, allowed)
    assert off(torch.full((SIZE,), 0.1), exact, allowed)


def test_what_follows_a_decision_has_room_and_an_update_left_out_shows():
    exact = 0.5 + noise(1, 0.05)
    eager, plain = exact * (1 + noise(2, 1e-4)), 1.5e-3
    program = exact * (1 + noise(3, 3e-3))
    assert off(program, exact, allowance(eager.float(), exact, [plain] * 8, 0.0, "fp32-strict", decided=False))
    allowed = allowance(eager.float(), exact, [plain] * 8, 0.0, "fp32-strict", decided=True)
    assert not off(program, exact, allowed) and not allowed.noise
    for cheat in (torch.zeros(SIZE), torch.ones(SIZE), exact * 1.1, exact.roll(1)):
        assert off(cheat, exact, allowed)


def test_few_decided_elements_are_no_noise():
    """Eager decides 8 % of the elements differently, and plain arithmetic 4 %: these are on either side of the share up to which decisions are
    ignored elsewhere."""
    exact = 1 + noise(1, 0.1)
    eager = exact.clone()
    eager[:4] += 0.4
    allowed = allowance(eager.float(), exact, [5e-3] * 8, 0.04, "fp32-strict", decided=True)
    program = exact.clone()
    program[5:9] -= 0.3
    assert not allowed.noise and not off(program, exact, allowed) and off(torch.zeros(SIZE), exact, allowed)


def test_without_a_decision_nothing_changes():
    exact = 1 + noise(1, 0.1)
    allowed = allowance((exact * (1 + 1e-7)).float(), exact, [2e-7] * 8, 0.0, "fp32-strict", decided=True)
    assert allowed.limit < 4e-6 and allowed.tolerated == 0
    assert (
        allowance((exact * 1.5).float(), exact, [2e-7] * 8, 0.0, "fp32-strict", decided=False) is None
    )  # only eager is far off, for no known reason


def test_errors_are_inherited_by_their_size():
    inherited = Inherited()
    tiny, real = torch.full((4,), 1e-17, dtype=torch.float64), torch.full((4,), 1e-2, dtype=torch.float64)
    assert inherited.add([tiny], [[1e9]]) == [[1e9, 1e9]] or inherited.errors[0][0] == 1e9
    ((own, before),) = inherited.add([real], [[1e-6]])
    assert own == 1e-6 and before == pytest.approx(1e-6)  # 1e9 times 1e-17 is 1e-8, relative to 1e-2


class Pair(torch.nn.Module):
    """Batch norms of two rows, so that the second one's running mean is noise."""

    def __init__(self, norm=torch.nn.BatchNorm1d):
        super().__init__()
        self.first, self.linear, self.second = norm(32), torch.nn.Linear(32, SIZE, bias=False), norm(SIZE)

    def forward(self, x):
        return self.second(self.linear(self.first(x)))


class Exact(torch.nn.BatchNorm1d):
    def forward(self, x):
        x = x.double()
        mean, var = x.mean(0), x.var(0, unbiased=False)
        self.running_mean.copy_(self.running_mean.double() * 0.9 + mean * 0.1)
        self.running_var.copy_(self.running_var.double() * 0.9 + var * 0.2)
        self.num_batches_tracked += 1
        return ((x - mean) * torch.rsqrt(var + self.eps) * self.weight + self.bias).float()


class Session:
    """The part of a reference that `Expectations` uses, in this process."""

    clock = staticmethod(time.monotonic)

    precision = "fp32-strict"

    class limits:
        oracle = 60.0

    def __init__(self, model: torch.nn.Module):
        self.model, self.exact = model, None
        before = {name: value.clone() for name, value in model.state_dict().items()}
        model(torch.rand(2, 32))
        self.mutated = [name for name, value in model.state_dict().items() if not torch.equal(value, before[name])]
        model.load_state_dict(before)

    def state(self, model: torch.nn.Module) -> list[torch.Tensor]:
        return [model.state_dict()[name].clone() for name in self.mutated]

    def eager(self, values: Values, rng: int) -> Run:
        self.before = {name: value.clone() for name, value in self.model.state_dict().items()}
        return self.answer(self.model(*values.tensors), self.model)

    def rollback(self) -> None:
        self.model.load_state_dict(self.before)

    def oracle(self, values: Values, rng: int, rough: int | None = None) -> Run:
        model = Pair()
        model.load_state_dict(self.model.state_dict())
        model = model.double()
        for name, value in zip(self.mutated, self.exact or [], strict=False):
            model.state_dict()[name].copy_(value)
        with default_double(), Wide() if rough is None else Rough(rough, torch.float32):
            return self.answer(model(*[tensor.double() for tensor in values.tensors]), model)

    def answer(self, output: torch.Tensor, model: torch.nn.Module) -> Run:
        return Run(Values({"t": 0}, [Spec.of(output)], [output]), self.state(model))


@pytest.fixture
def calls():
    """Yields two calls of a task, each as (`Expectations`, the expected result, the state of a more exact program after the call)."""

    def run(change=lambda program: None, count=2):
        import random

        with torch.no_grad():
            torch.manual_seed(5)
            session, program = Session(Pair()), Pair(Exact)
            program.load_state_dict(session.model.state_dict())
            expectations = Expectations(session, random.Random(1))
            for _ in range(count):
                x = torch.rand(2, 32) * 0.05 + 4
                expected = expectations.expect(Values({"l": [{"t": 0}]}, [Spec.of(x)], [x]), 1, strict=True)
                program(x)
                change(program)
                yield expectations, expected, dict(zip(session.mutated, zip(session.state(program), expected.state, strict=True), strict=True))

    return run


def refused(found) -> list[str]:
    return [name for name, (value, leaf) in found.items() if not judge(value, leaf.reference, leaf.limit, leaf.tolerated).ok]


def test_a_more_exact_program_passes_call_after_call(calls):
    for number, (expectations, expected, found) in enumerate(calls()):
        assert refused(found) == ["second.running_mean"], number  # at first, the comparison is with eager's own noise
        expectations.appeal(expected)
        assert refused(found) == [], number


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("first.running_mean", lambda program: program.first.running_mean.mul_(1.001)),
        ("first.running_mean", lambda program: program.first.running_mean.zero_()),
        ("first.running_var", lambda program: program.first.running_var.fill_(1)),
        ("second.running_var", lambda program: program.second.running_var.fill_(1)),
        ("second.running_mean", lambda program: program.second.running_mean.fill_(1)),
    ],
)
def test_a_wrong_state_stays_wrong(calls, name, change):
    for expectations, expected, found in calls(change):
        expectations.appeal(expected)
        assert name in refused(found)
