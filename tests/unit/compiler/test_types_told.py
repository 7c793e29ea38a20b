"""Type checks on numbers and tensors in a forward have the same results during an export as in a plain call."""

import pytest
import torch

from tests.slowness import quick
from tests.unit.compiler.test_parts import checked, written

NUMBER = "h = torch.tanh(self.fc(x)) * 2\ns = h.abs().sum().item()\nn = int((h > 0).sum())\n"
TENSOR = "h = torch.tanh(self.fc(x)) * 2\n"
# the statement that decides, in front of `return h * v`; whether the whole forward is captured
ASKED = {
    "a float": (NUMBER + "v = s if isinstance(s, float) else 100.0", True),
    "one of two types": (NUMBER + "v = s if isinstance(s, (int, float)) else 100.0", True),
    "a whole number": (NUMBER + "v = n + 0.5 if isinstance(n, int) else 100.0", True),
    "an abstract type": (NUMBER + "v = 2.0 if isinstance(s, numbers.Number) else 7.0", True),
    "the type itself": (NUMBER + "v = 2.0 if type(s) is float and type(n) is int else 7.0", True),
    "the type of a constant": (NUMBER + "v = s if type(1.5) is float and type(2) == int else 7.0", True),
    "a pattern": (NUMBER + "match s:\n    case float():\n        v = 2.0\n    case _:\n        v = 7.0", True),
    "an attribute": (NUMBER + "v = getattr(s, 'real', 7.0) if not hasattr(s, 'shape') else 5.0", False),
    "a text": (NUMBER + "v = 1.0 + len(str(n)) + len(f'{s:.3f}')", False),
    "a printed text": (NUMBER + "print(f'{s:.3f}')\nv = s", True),
    "a list of numbers": ("h = torch.tanh(self.fc(x)) * 2\nv = 3.0 if all(isinstance(q, float) for q in h[0, :2].tolist()) else 4.0", True),
    "a tensor's type": (TENSOR + "v = 2.0 if type(h) is torch.Tensor and type(h).__name__ == 'Tensor' else 5.0", True),
    "a parameter's type": (TENSOR + "v = {nn.Parameter: 2.0}.get(type(self.fc.weight), 5.0)", True),
    "a tensor's class": (TENSOR + "v = 2.0 if h.__class__ is torch.Tensor and x.__class__.__name__ == 'Tensor' else 5.0", True),
    "a parameter's class": (TENSOR + "v = 2.0 if self.fc.weight.__class__ is torch.nn.Parameter else 5.0", True),
    "the text of a tensor": (TENSOR + "v = 2.0 if 'ensor(' in repr(h) and len(f'{h.sum()}') < 30 and 'Fake' not in str(h) else 5.0", False),
    "a printed tensor": (TENSOR + "print(h, f'{x}')\nv = 2.0", True),
    "a made class": (TENSOR + "v = type('Made', (), {'v': 2.0})().v if isinstance(Model, type) else 5.0", True),
}


@pytest.mark.parametrize("kind", quick(ASKED, 5))
def test_a_question_about_types_has_the_answer_of_a_plain_call(kind):
    body, whole = ASKED[kind]
    torch.manual_seed(0)
    plan, _ = checked(written(f"{body}\nreturn h * v", "x", "", before="import numbers\n\n\n"))
    assert plan.own and bool(plan.captured.parts) is not whole, plan.left


COPIED = {
    "a copy shares memory": "y = copy.copy(h)\ny.add_(1)\nreturn torch.softmax(h, -1) + y * 2",
    "a deep copy does not": "y, z = copy.deepcopy([h, h])\ny.add_(1)\nreturn torch.softmax(h, -1) + y * 2 + z",
    "a layer": "fast = copy.deepcopy(self.fc)\nfor w in fast.parameters():\n    w.mul_(0.5)\nreturn torch.softmax(fast(h), -1) - self.fc(h)",
}


@pytest.mark.parametrize("kind", COPIED)
def test_copies_are_traced(kind):
    torch.manual_seed(0)
    plan, _ = checked(written(TENSOR + COPIED[kind], "x", "", before="import copy\n\n\n"))
    assert plan.own and not plan.captured.parts, plan.left


def test_a_forward_that_reads_versions_stays_as_it_is():
    """A part returns new tensors, whose versions are those of no tensor of the model."""
    body = TENSOR + "h.add_(1)\nv = 3.0 if h._version == 1 else 5.0\nif h.sum() > 0:\n    v = v + 1\nreturn torch.softmax(h, -1) * v"
    torch.manual_seed(0)
    plan, _ = checked(written(body, "x", ""))
    assert not plan.own and plan.why_none
