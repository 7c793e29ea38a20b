"""Tensors that share memory across parts of forward: a change in place shows in every tensor in which it shows in PyTorch, and in no other."""

import copy

import pytest
import torch

from compiler import DeviceFigures, Options, make_plan, print_program
from tests.unit.compiler.loading import load
from tests.unit.compiler.test_parts import written
from verifier.parties.capturing.capture import capture

HEAD = "h = torch.tanh(self.fc(x)) * 2\n"
IF = "if x.sum() > -1e9:\n    "  # ends a part
BODIES = {
    "another name": f"{HEAD}y = h\n{IF}y = y\ny += 1\ny *= 2\n{IF}y.mul_(3)\nreturn torch.softmax(h, -1), y + 1",
    "an argument returned": f"h = x\n{IF}h = x\nh = h.add_(1).mul_(2)\nh.sub_(1)\n{IF}h.mul_(2)\nreturn x, torch.softmax(h, -1)",
    "a view of an argument": f"h = x[:, :6]\n{IF}h.add_(1)\nz = torch.softmax(x, -1) * 2\nh.mul_(2)\nreturn z + x, h",
    "a view of a view": f"{HEAD}v = h[:, :6]\n{IF}v = v\nw = v[1:]\nz = torch.softmax(w, -1) + 1\n{IF}w.add_(2)\nreturn h.exp() + 1, z, v",
    "a view of what is changed": f"{HEAD}v = h[:, :6]\n{IF}v = v\nv.mul_(2)\nw = v[1:]\nz = v.exp() + 1\n{IF}w.add_(2)\nreturn h.exp() + 1, z, v",
    "state": f"{HEAD}{IF}h = h\nb = self.fc.bias\nb.add_(1).mul_(0.5)\nz = torch.softmax(h + b, -1)\n{IF}b.add_(2)\nreturn self.fc(x) + z, b * 2",
    "pieces of what is changed": f"{HEAD}{IF}h = h\nh.add_(1)\nf, g = h.chunk(2, -1)\nz = (f * g).exp()\n{IF}f.add_(2)\nreturn h.exp() + 1, z, g",
    "a copy": f"{HEAD}k = h * 3\n{IF}h = h\nh.copy_(k)\nz = torch.softmax(h * k, -1)\n{IF}k.add_(2)\nreturn h.exp() + 1, z, k",
    "a sum beside its pieces": f"{HEAD}f, g = h.chunk(2, -1)\n{IF}f.sigmoid_()\nz = f * g.tanh()\ng.add_(z)\nreturn torch.softmax(h, -1) * 2",
    "equal operators": f"{HEAD}a = h * 3\nb = h * 3\n{IF}a.add_(1)\nreturn torch.softmax(a, -1) + b",
    "filled tensors": f"{HEAD}a = torch.zeros_like(h)\nb = torch.zeros_like(h)\nc = a\n{IF}a.add_(1)\nreturn torch.softmax(a + h, -1) + b + c",
    "a view of a filled tensor": f"{HEAD}a = torch.zeros(8, 12)\nv = a[0]\n{IF}a.add_(1)\nreturn torch.softmax(a + h, -1) + v",
    "copies that change nothing": f"{HEAD}c = h.clone()\nd = h + 0\ne = torch.cat([h])\n{IF}h.add_(1)\nreturn h.exp() * 2, c, d, e",
    "parts of a complex tensor": f"h = torch.complex(x.tanh(), x)\na, b = h.real, h.imag\n{IF}a.add_(1)\nreturn torch.softmax(h.abs(), -1), b",
    "tensors in a list": f"{HEAD}rows = list(h.unbind(0))\n{IF}rows[0].add_(5)\nrows = rows[::-1]\nrows[0].mul_(2)\nreturn torch.stack(rows) * h",
    "one tensor by chance": f"{HEAD}b = h.exp()\n{IF}b = h if x[0, 0] > 8 else b\nh.add_(1)\nreturn torch.exp(-h * b)",
    "a view of a weight": f"b = self.fc.bias[:6]\n{IF}b = b\nb.add_(1)\nz = self.fc(x).exp()\nreturn torch.softmax(z, -1) + 1, b * 2",
    "a weight with a view": f"b = self.fc.bias[:6]\n{IF}b = b\nself.fc.bias.add_(1)\nz = b.exp() * 2\nreturn self.fc(x).exp() + 1, z",
    "exchanged names": f"{HEAD}a, b = h[:4], h[4:]\n{IF}a, b = b, a\na.copy_(b)\nb.add_(1)\nreturn torch.softmax(h, -1) + 1",
}


LATER = f"z = torch.softmax(h, -1)\n{IF}h = h\n"
# the statements, the arguments of forward, and further inputs
CONTAINERS = {
    "a list that grows": (f"{HEAD}kept = [h]\n{IF}h = h\nkept.append(h.exp() * 2)\n{LATER}return torch.stack(kept).sum(0) * z, len(kept)", "x", ""),
    "an element": (f"{HEAD}kept = [h, h]\n{IF}h = h\nkept[0] = h.exp() * 2\n{LATER}return torch.stack(kept).sum(0) * z, len(kept)", "x", ""),
    "a list in a dict": (f"{HEAD}d = {{'k': []}}\n{IF}h = h\nd['k'].append(h.exp() * 2)\n{LATER}return sum(d['k']) * z, len(d['k'])", "x", ""),
    "another name for a list": (
        f"{HEAD}a = []\nb = a\n{IF}h = h\na = a + [h.exp()]\nb += [h.sin() * 2]\n{LATER}return sum(a) * z + sum(b), len(b)", "x", ""
    ),
    "two names for a list": (f"{HEAD}a = [h]\nb = a\n{IF}h = h\na.append(h.exp() * 2)\n{LATER}return sum(b) * z, len(b)", "x", ""),
    "a second name for a list": (f"{HEAD}a = [h]\n{IF}h = h\nb = a\n{LATER}if x.sum() > -1e9:\n    a.append(z)\nreturn sum(b) * z, len(b)", "x", ""),
    "an argument": (f"{HEAD}past.append(h)\nreturn torch.softmax(h, -1) * 2 + past[0]", "x, past", ", [torch.rand(8, 12)]"),
    "an argument's entry": (f"{HEAD}past['k'] = h\nreturn torch.softmax(h, -1) * 2", "x, past", ", {'k': torch.rand(8, 12)}"),
}  # fmt: skip


@pytest.mark.parametrize("kind", CONTAINERS)
def test_lists_and_dicts_change_as_in_pytorch(kind):
    compared(written(*CONTAINERS[kind]))


@pytest.mark.parametrize("kind", BODIES)
def test_changes_in_place_show_in_the_same_tensors(kind):
    compared(written(BODIES[kind], "x", ""))


def compared(source):
    task = load(source, "task")
    torch.manual_seed(0)
    model, eager = task["Model"](), task["Model"]()
    found = capture(model, task["get_inputs"](), source, "train")
    made = load(print_program(make_plan(found, source, DeviceFigures.cpu(2)), source, Options()), "program")["ModelNew"]()
    made.load_state_dict(eager.state_dict())
    assert found.graph.parts
    for first in (0.0, 9.0):
        inputs = task["get_inputs"]()
        inputs[0][0, 0] = first
        own = copy.deepcopy(inputs)
        with torch.no_grad():
            expected, got = eager(*inputs), made(*own)
        torch.testing.assert_close((got, own), (expected, inputs), rtol=2e-5, atol=2e-5)
        torch.testing.assert_close(made.state_dict(), eager.state_dict())
