"""Value checks in forward: the program also performs the checks made by torch.distributions and torch._assert_async, without leaving the graph."""

import pytest
import torch

from tests.slowness import quick
from tests.unit.compiler.loading import load
from tests.unit.compiler.test_parts import INIT, checked, written

TD = "import torch.distributions as td\n\n\n"
BODIES = {
    "a policy": "d = td.Normal(self.fc(x), x.abs() + 0.1)\na = d.rsample()\nc = td.Categorical(logits=self.fc(a))\n"
    "return a, d.log_prob(a), c.entropy(), td.kl_divergence(d, td.Normal(torch.zeros(12), torch.ones(12)))",
    "matrices": "a = self.fc(x)\nd = td.MultivariateNormal(a, torch.eye(12) * 2 + (a.t() @ a) * 0.1)\nreturn d.log_prob(x), d.entropy()",
    "a mixture": "w, m = torch.tanh(self.fc(x)).chunk(2, -1)\n"
    "d = td.MixtureSameFamily(td.Categorical(logits=w), td.Independent(td.Laplace(m[..., None].expand(8, 6, 2), torch.ones(2)), 1))\n"
    "return d.log_prob(x[:, :2]), d.mean",
    "a straight-through sample": "d = td.Independent(td.OneHotCategoricalStraightThrough(logits=self.fc(x).view(8, 3, 4)), 1)\n"
    "z = d.rsample()\nreturn z, d.log_prob(z.detach().round()), td.Bernoulli(logits=self.fc(z.flatten(1))).log_prob((x > 0).float())",
}


@pytest.fixture(autouse=True)
def validating():
    """Other code, such as torch.compile's, turns validation off for the whole process."""
    before = td_base()._validate_args
    td_base().set_default_validate_args(True)
    yield
    td_base().set_default_validate_args(before)


def td_base():
    return torch.distributions.Distribution


@pytest.mark.parametrize("kind", quick(BODIES, 1))
def test_models_of_distributions_are_captured_whole(kind):
    plan, text = checked(written(BODIES[kind], "x", "", INIT, TD))
    assert plan.own and not plan.captured.parts and not plan.left
    assert "to satisfy the constraint" in text


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("return td.Normal(torch.tanh(self.fc(x)) * 2, x).log_prob(x) + 1", "Expected parameter scale of distribution Normal"),
        ("return td.Exponential(x.exp() * 2 + 1).log_prob(torch.tanh(x) * 2) + 1", r"within the support \(.*\) of the distribution Exponential"),
        ("h = torch.tanh(self.fc(x)) * 2\ntorch._assert_async((x > 0).all(), 'x is negative')\nreturn torch.softmax(h, -1)", "x is negative"),
    ],
    ids=["parameter", "sample", "own"],
)
def test_values_that_are_refused_are_refused_by_the_program(body, why):
    source = written(body, "x", "").replace("torch.randn(8, 12)", "torch.rand(8, 12) + 0.1").replace("class Model", TD + "class Model")
    plan, text = checked(source)
    program = load(text, "program")["ModelNew"]()
    assert plan.own and not plan.left
    with pytest.raises(RuntimeError, match=why):
        program(-torch.rand(8, 12))
