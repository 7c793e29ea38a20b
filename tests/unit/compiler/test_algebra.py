"""Identities that remove operators: the results are the same, and the plan and the program mention them."""

import pytest

from compiler import DeviceFigures
from tests.emulator import as_cpp

INIT = "self.fc = nn.Linear(40, 300)\nself.w = nn.Parameter(torch.randn(300, 40))"
TAKEN = {
    "linear": ("return self.fc(x).sum(dim=1, keepdim=True)", "(30, 40)"),
    "scaled": ("y = torch.matmul(x, self.w.t()) / 2\nreturn torch.sum(y, dim=1, keepdim=True) * 1.5", "(30, 40)"),
    "mean": ("return torch.relu((-self.fc(x)).mean(-1))", "(3, 5, 40)"),
    "vectors": ("y = (self.fc(x) - self.fc.bias * 2) * 3 + self.w[:, :1].t()\nreturn y.mean(dim=1, keepdim=True)", "(30, 40)"),
    "then-one": (
        "y = self.fc(x).sum(1, keepdim=True)\ny = y.max(dim=1, keepdim=True)[0].mean(1, keepdim=True)\nreturn torch.logsumexp(y, 1)",
        "(30, 40)",
    ),
}
LEFT = {
    "another reader": "y = self.fc(x)\nreturn y.sum(1), y",
    "another axis": "return self.fc(x).sum(0)",
    "not linear": "return torch.relu(self.fc(x)).sum(1)",
    "a shift of rows": "return (self.fc(x) - x[:, :1]).sum(1)",
    "by a tensor": "return (self.fc(x) * self.fc.bias).sum(1)",
    "an axis more": "return (self.fc(x) + self.fc.bias[None, None]).sum(-1)",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TAKEN)
def test_sums_over_the_columns_of_a_product(compiled, task, name):
    body, shape = TAKEN[name]
    found = compiled(task(body, f"torch.randn{shape}", INIT))
    assert any("sum of the columns" in note for note in found.plan.notes) and "Identities of algebra:" in found.text
    found.check()


@pytest.mark.slow
def test_the_product_itself_is_gone(compiled, task):
    body = "return self.fc(x).sum(dim=1, keepdim=True)"
    source = task(body, "torch.randn(64, 4096)", "self.fc = nn.Linear(4096, 512)")
    found = compiled(source, figures=DeviceFigures.h200())
    assert sorted(group.family for group in found.plan.groups) == ["", "", "matvec"]
    found.text = as_cpp(found.text)
    found.check()


@pytest.mark.parametrize("name", LEFT)
def test_what_is_no_sum_of_a_product_alone_stays(compiled, task, name):
    found = compiled(task(LEFT[name], "torch.randn(30, 40)", "self.fc = nn.Linear(40, 300)"))
    assert not found.plan.notes


def test_reductions_over_one_element(compiled, task):
    found = compiled(task("return x.mean(1), x.amax((1, 3), keepdim=True) + 1, x.logsumexp(3), x.var(1)", "torch.randn(4, 1, 9, 1)"))
    assert sum("that element" in note for note in found.plan.notes) == 3
