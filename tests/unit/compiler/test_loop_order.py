"""Loops are put in the order that touches the least memory, but only if it is clearly better; the results do not change."""

import pytest

from compiler import DeviceFigures
from compiler.graph.network import Network
from compiler.kernel.fuse import build
from compiler.kernel.loop_order import Walk, cost, ranked

N, C, H, W = 8, 64, 28, 28
PERMUTED = "return torch.tanh(x.permute(0, 3, 1, 2)) * y.permute(0, 3, 1, 2) + z.permute(0, 3, 1, 2)"  # reads channels last, writes channels first
TURNED = "return x.transpose(1, 2) * 2 + y"  # in either order, one of the accesses is strided


def kernel_of(found):
    network = Network(found.plan.graph)
    return build(network, found.plan.own[0].operators)


def test_neighbours_in_memory_are_walked_one_after_another():
    steps = (H * W * C * 4, 4, W * C * 4, C * 4)  # channels last, in the order of the shape
    walks = [Walk(steps), Walk(steps), Walk((0, 4, 0, 0))]
    best = ranked([N, C, H, W], range(4), walks)[0]
    assert best[-1] == 1 and cost([N, C, H, W], best, walks) < 0.5 * cost([N, C, H, W], range(4), walks)
    straight = [Walk((C * H * W * 4, H * W * 4, W * 4, 4))] * 2
    assert ranked([N, C, H, W], range(4), straight)[0] == (0, 1, 2, 3)
    across = [Walk((4096 * 4, 4)), Walk((4, 4096 * 4))]
    assert ranked([4096, 4096], range(2), across)[0] == (0, 1), "of equals the present order"


@pytest.mark.parametrize("figures", [DeviceFigures.cpu(2), DeviceFigures.h200()], ids=["cpu", "cuda"])
def test_the_loop_follows_the_tensors_that_most_is_read_from(compiled, task, figures):
    found = compiled(task(PERMUTED, ", ".join([f"torch.randn({N}, {H}, {W}, {C})"] * 3), arguments="x, y, z"), figures=figures)
    kernel = kernel_of(found)
    assert kernel.sizes == [N, H * W, C]
    assert sorted(access.strides[-1] for access in kernel.accesses()) == [1, 1, 1, H * W]
    if figures.kind == "cpu":
        found.check()


def test_what_is_not_clearly_better_stays(compiled, task):
    found = compiled(task(TURNED, "torch.randn(4, 96, 160), torch.randn(4, 160, 96)", arguments="x, y"), figures=DeviceFigures.cpu(2))
    assert kernel_of(found).sizes == [4, 160, 96]
    found.check()


@pytest.mark.parametrize("body", ["return x.permute(0, 3, 1, 2).sum((1, 3))", "return x.permute(0, 3, 1, 2).cumsum(1)"])
def test_sums_over_permuted_tensors_stay_right(compiled, task, body):
    found = compiled(task(body, f"torch.randn(2, 9, 14, {C})"), figures=DeviceFigures.cpu(2))
    found.check()
