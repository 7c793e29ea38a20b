"""Equal operators are computed once, unless they draw random numbers or forward returns them."""

from compiler import DeviceFigures

ROTATED = """def turned(v):
    angles = at[:, None].float() * self.rates
    return v * angles.cos() + torch.flip(v, (-1,)) * angles.sin()
return turned(x) @ turned(y).t()"""


def test_equal_operators_are_computed_once(compiled, task):
    body = ROTATED.replace("\n", "\n    ").replace("\n    return turned(x)", "\nreturn turned(x)").replace("\n        ", "\n    ")
    found = compiled(task(body, "torch.randn(40, 8), torch.randn(40, 8), torch.arange(40)", "self.rates = nn.Parameter(torch.randn(8))", "x, y, at"))
    kinds = [kind for group in found.plan.groups for kind in group.kinds]
    assert kinds.count("cos") == kinds.count("sin") == 1, kinds
    found.check()


def test_returned_values_and_random_numbers_stay_apart(compiled, task):
    found = compiled(task("return torch.exp(x), torch.exp(x), torch.exp(x) + 1", "torch.randn(60, 70)"))
    kinds = [kind for group in found.plan.groups for kind in group.kinds]
    assert kinds.count("exp") == 3
    found.check()
    drawn = compiled(task("return torch.dropout(x, 0.5, True) + torch.dropout(x, 0.5, True)", "torch.randn(60, 70)"))
    kinds = [kind for group in drawn.plan.groups for kind in group.kinds]
    assert sum("dropout" in kind or "bernoulli" in kind or "rand" in kind for kind in kinds) >= 2, kinds


def test_a_range_is_created_once_on_a_gpu(compiled, task):
    """On a GPU, a range is a kernel launch; a program that only reads it creates it with the packed weights."""
    body = "order = torch.arange(0, 200, 2)\nreturn torch.tanh(x) * 2 + torch.bucketize(x, order), torch.arange(5)"
    source = task(body, "torch.randn(300, 400)")
    program = compiled(source, figures=DeviceFigures.h200())
    assert "packed[0]" in program.text and program.text.count("torch.arange(0, 200, 2") == 1
    forward = program.text.split("def forward")[1]
    assert "torch.arange(0, 200" not in forward and "torch.arange(0, 5" in forward, "what is returned is new in every call"
    compiled(source).check()
