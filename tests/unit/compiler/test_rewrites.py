"""Operators that are planned in terms of others: the values are the same, and fewer operators are left to PyTorch."""

import pytest

from compiler import DeviceFigures, Options

CASES = {
    "max": ("return x.max(dim=1)[0] * 2", "torch.randn(4, 6, 5)"),
    "min": ("return torch.min(x, 2, keepdim=True)[0]", "torch.randn(4, 6, 5)"),
    "instance-norm": ("return F.relu(self.n(x))", "torch.randn(2, 3, 8, 9)", "self.n = nn.InstanceNorm2d(3)"),
    "instance-norm-affine": ("return self.n(x)", "torch.randn(2, 3, 8)", "self.n = nn.InstanceNorm1d(3, affine=True)"),
    "dropout-0": ("return F.dropout(x, 0.0) + 1", "torch.randn(4, 6)"),
    "global-pool": ("return F.adaptive_avg_pool2d(F.relu(x), 1)", "torch.randn(2, 3, 8, 9)"),
    "triu": ("return torch.triu(x, 1) * 2", "torch.randn(3, 7, 9)"),
    "tril": ("return torch.tril(x) + torch.triu(x, -2)", "torch.randn(7, 9)"),
}


@pytest.mark.parametrize("name", CASES)
def test_nothing_is_left_to_pytorch(compiled, task, name):
    body, inputs, *init = CASES[name]
    found = compiled(task(body, inputs, *init))
    assert {group.space for group in found.plan.groups} == {"own kernel"}, found.plan.groups
    found.check()


EQUATIONS = {"bijl,lk->bijk": ((8, 9, 4, 5), (5, 6)), "bij,bjk->bik": ((9, 16, 4), (9, 4, 9)), "ij,kj->ik": ((40, 4), (50, 4))}


@pytest.mark.parametrize("equation,shapes", EQUATIONS.items())
def test_einsum_is_a_product(compiled, task, equation, shapes):
    source = task(f"return F.relu(torch.einsum('{equation}', a, b))", ", ".join(f"torch.randn{shape}" for shape in shapes), arguments="a, b")
    found = compiled(source)
    assert "torch.matmul(" in found.text and "torch.einsum(" not in found.text
    found.check()


VECTORS = {"bhkv,bhk->bhv": ((2, 3, 24, 32), (2, 3, 24)), "bk,bjk->bj": ((4, 40), (4, 9, 40)), "hij,hij->h": ((3, 20, 30), (3, 20, 30))}


@pytest.mark.parametrize("equation", VECTORS)
def test_einsums_with_vectors_are_sums_of_our_own(compiled, task, equation):
    shapes = ", ".join(f"torch.randn{shape}" for shape in VECTORS[equation])
    found = compiled(task(f"return torch.einsum('{equation}', a, b) * 2", shapes, arguments="a, b"))
    assert {group.space for group in found.plan.groups} == {"own kernel"}, found.plan.groups
    found.check()


CONTRACTED = {
    "bclhn,bcshn,bhcls,bcshp->bclhp": ((2, 3, 5, 4, 6), (2, 3, 7, 4, 6), (2, 4, 3, 5, 7), (2, 3, 7, 4, 8)),
    "bclhn,bhcl,bclhp->bchpn": ((2, 3, 5, 4, 6), (2, 4, 3, 5), (2, 3, 5, 4, 8)),
    "bclhn,bchpn,bhcl->bclhp": ((2, 3, 5, 4, 6), (2, 3, 4, 8, 6), (2, 4, 3, 5)),
    "ij,kl->ikjl": ((2, 3), (4, 5)),
    "ik,kj,j->ji": ((9, 6), (6, 7), (7,)),
}
STAYING = {
    "two indices at once": ("abc,bcd->ad", ((2, 3, 4), (3, 4, 5))),
    "rows of several": ("bhzc,bchpn->bzhpn", ((2, 4, 3, 3), (2, 3, 4, 5, 6))),
    "a sum of one": ("ij,jk->i", ((4, 5), (5, 6))),
    "a diagonal": ("iij,jk->ik", ((4, 4, 5), (5, 6))),
    "no rows": ("i,i->i", ((4,), (4,))),
    "one operand": ("ij->ji", ((4, 5),)),
}


@pytest.mark.parametrize("equation", CONTRACTED)
def test_einsums_of_several_are_products_and_multiplications(compiled, task, equation):
    shapes = CONTRACTED[equation]
    names = "abcd"[: len(shapes)]
    source = task(
        f"return F.relu(torch.einsum('{equation}', {', '.join(names)})) + 1",
        ", ".join(f"torch.randn{shape}" for shape in shapes),
        arguments=", ".join(names),
    )
    found = compiled(source)
    assert "torch.einsum(" not in found.text
    found.check()


def test_several_einsums_do_not_share_names(compiled, task):
    step = "torch.einsum('bclhn,bcshn,bhcls,bcshp->bclhp', a, b, c, d)"
    shapes = CONTRACTED["bclhn,bcshn,bhcls,bcshp->bclhp"]
    body = f"d = {step}[:, :, :1].expand_as(d) + d\n" * 3 + "return d"
    compiled(task(body, ", ".join(f"torch.randn{shape}" for shape in shapes), arguments="a, b, c, d")).check()


@pytest.mark.parametrize("name", STAYING)
def test_what_is_no_matrix_product_stays_or_is_the_same(compiled, task, name):
    equation, shapes = STAYING[name]
    names = "abcd"[: len(shapes)]
    body = f"return torch.einsum('{equation}', {', '.join(names)}) + 1"
    compiled(task(body, ", ".join(f"torch.randn{shape}" for shape in shapes), arguments=", ".join(names))).check()


def test_attention_with_wide_heads_is_products_and_a_softmax(compiled, task):
    body = "return F.scaled_dot_product_attention(q, k, v, scale=0.1)"
    found = compiled(task(body, "torch.randn(2, 3, 40, 160), torch.randn(2, 3, 50, 160), torch.randn(2, 3, 50, 24)", arguments="q, k, v"))
    assert "attention(" not in found.text and "softmax" in found.text
    found.check()


def test_other_einsums_and_indices_stay(compiled, task):
    compiled(task("return torch.einsum('ij,kl->ikjl', a, b) + 1", "torch.randn(2, 3), torch.randn(4, 5)", arguments="a, b")).check()
    compiled(task("v, i = x.max(1)\nreturn v * 2, i", "torch.randn(4, 5)")).check()


def test_a_hidden_state_in_a_plain_attribute(compiled, task):
    init = "self.hidden = torch.zeros(64, 32)\nself.cell = nn.Linear(48, 32)"
    body = "self.hidden.copy_(h)\nself.hidden = torch.tanh(self.cell(torch.cat((x, self.hidden), 1)))\nreturn self.hidden * 2"
    found = compiled(task(body, "torch.randn(64, 16), torch.randn(64, 32)", init, "x, h"))
    assert "self.hidden = self.hidden.to(x.device)" in found.text and "self.hidden.copy_(" in found.text and "aten.copy" not in found.text
    found.check()
    recorded = compiled(found.source, figures=DeviceFigures.h200(), options=Options().with_strategy("cuda-graph")).text
    assert recorded.split("def forward(")[1].index("self.hidden.to(x.device)") < recorded.split("def forward(")[1].index("key = ")
    assert "state = [self.hidden]" in recorded
