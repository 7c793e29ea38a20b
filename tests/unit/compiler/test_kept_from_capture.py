"""A program keeps nothing from the capture that may be different in another call: state outside the state dict, however it is read; Python's random
numbers; the clock; lists, modules and functions held in variables."""

import pytest

from tests.slowness import quick
from tests.unit.compiler.test_parts import INIT, checked, written

START = "h = torch.tanh(self.fc(x)) * 2\n"
COUNTER = "def counter():\n    n = 0\n\n    def step():\n        nonlocal n\n        n += 1\n        return n\n\n    return step\n\n\n"
GAIN = "class Gain(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.k = 1.0\n\n    def forward(self, x):\n"
HALVING = GAIN + "        self.k *= 0.5\n        return x * self.k\n\n\n"
OBJECT = (
    "class Settings:\n    scale = 1.0\n\n    def __call__(self):\n        self.scale *= 0.5\n        return self.scale\n\n\n"
    "class Block(nn.Module):\n    def __init__(self, cfg):\n        super().__init__()\n        self.cfg = cfg\n\n"
    "    def forward(self, x):\n        return torch.sigmoid(x * self.cfg.scale) * x\n\n\n"
)
METHOD = "\n    def act(self, h):\n        return torch.sigmoid(h * {}) * h\n"

SHARED = "self.cfg.scale *= 0.5\nreturn self.b(h)"

# name -> (before the class, in its constructor, its other methods, forward behind START, what stays in Python names)
STATE = {
    "a setting of a layer": ("", "self.bn = nn.BatchNorm1d(12)", "", "self.bn.momentum *= 0.9\nreturn F.softmax(self.bn(h), -1)", "bn.momentum"),
    "a submodule that changes itself": (HALVING, "self.g = Gain()", "", "a = self.g\ny = a(h)\nreturn y + torch.softmax(h * a.k, -1)", "g.k"),
    "a helper method": ("", "self.n = 0", METHOD.format("self.n"), "self.n += 1\nreturn self.act(h) + 1", "n"),
    "a dict in a helper method": ("", "self.c = {'s': 1.0}", METHOD.format("self.c['s']"), "self.c['s'] *= 0.5\nreturn self.act(h) + 1", "c"),
    "an object that a submodule shares": (
        OBJECT,
        "self.cfg = Settings()\nself.b = Block(self.cfg)",
        "",
        "self.cfg.scale *= 0.5\nreturn self.b(h)",
        "cfg",
    ),
    "an object that is called": (OBJECT, "self.next = Settings()", "", "return torch.softmax(h, -1) * self.next()", "next"),
    "a variable of an enclosing function": (COUNTER, "self.step = counter()", "", "return torch.softmax(h, -1) * self.step()", "step"),
    "a default value": ("def calls(log=[]):\n    log.append(1)\n    return len(log)\n\n\n", "", "", "return torch.softmax(h, -1) * calls()", "calls"),
    "an attribute of a function": ("def f():\n    f.n += 1\n    return f.n\n\n\nf.n = 0\n\n\n", "", "", "return torch.softmax(h, -1) * f()", "f"),
    "an attribute of the class": ("", "", "\n    n = 0\n", "Model.n += 1\nreturn torch.softmax(h, -1) * self.n", "Model.n"),
    "a variable of the source": ("N = 1\n\n\ndef f():\n    return 1 / N\n\n\n", "", "", "global N\nN += 1\nreturn torch.softmax(h, -1) * f()", "N"),
    "an iterator": ("import itertools\n\n\n", "self.i = itertools.count(1)", "", "return torch.softmax(h, -1) * next(self.i)", "i"),
    "a generator of numpy": (
        "import numpy as np\n\n\n",
        "self.r = np.random.default_rng(0)",
        "",
        "return torch.softmax(h, -1) * float(self.r.random())",
        "r",
    ),
    "a bound method": (
        "class Steps:\n    n = 0\n\n    def next(self):\n        self.n += 1\n        return self.n\n\n\n",
        "self.step = Steps().next",
        "",
        "return torch.softmax(h, -1) / self.step()",
        "step",
    ),
    "a partial function": (
        "import functools\n\n\ndef scaled(state, t):\n    state['n'] += 1\n    return t / state['n']\n\n\n",
        "self.f = functools.partial(scaled, {'n': 0})",
        "",
        "return torch.softmax(self.f(h), -1)",
        "f",
    ),
    "an array of numpy": (
        "import numpy as np\n\n\n",
        "self.k = np.ones(12, dtype=np.float32)",
        "",
        "self.k *= 0.5\nreturn torch.softmax(h * torch.from_numpy(self.k.copy()), -1)",
        "k",
    ),
    "a counter that decides in a later call": (
        "",
        "self.n = 0",
        "",
        "self.n = (self.n + 1) % 4\nif self.n == 0:\n    h = h.exp()\nreturn torch.softmax(h, -1)",
        "n",
    ),
    "a table of names": ("", "self.k = 1.0", "", "self.k *= 0.5\ny = torch.softmax(h * vars(self)['k'], -1)\nreturn y if y.sum() > 0 else h", "k"),
    "a generator": (
        "def gen():\n    k = 1.0\n    while True:\n        yield k\n        k *= 0.5\n\n\n",
        "self.g = gen()",
        "",
        "return torch.softmax(h, -1) * next(self.g)",
        "g",
    ),
    "an iterator over a list": ("", "self.i = iter([1.0, 2.0, 3.0, 4.0, 5.0])", "", "return torch.softmax(h, -1) * next(self.i)", "i"),
    "an object with places": (
        "class State:\n    __slots__ = ('n',)\n\n    def __init__(self):\n        self.n = 0\n\n\n",
        "self.s = State()",
        "",
        "self.s.n += 1\nreturn torch.softmax(h, -1) / self.s.n",
        "s",
    ),
    "a context variable": (
        "import contextvars\n\nV = contextvars.ContextVar('v', default=1)\n\n\n",
        "",
        "",
        "V.set(V.get() + 1)\nreturn torch.softmax(h, -1) / V.get()",
        "V",
    ),
    "the module under a name": (
        "",
        "self.a = nn.Linear(12, 12)\nself.b = nn.Linear(12, 12)\nself.now = self.a",
        "",
        "y = self.now(h)\nself.now = self.b\nreturn torch.softmax(torch.tanh(y), -1)",
        "now",
    ),
    "what no call at the capture changes": (
        "",
        "self.clip = 0.0",
        "",
        "if h.mean() > 0.05:\n    self.clip = 1.0\nreturn torch.softmax(torch.relu(h - self.clip) * 3, -1)",
        "clip",
    ),
}
# name -> (import, forward behind START, the reason)
ASKED = {
    "random": ("import random", "return torch.softmax(h * random.random(), -1)", "random numbers"),
    "random under another name": ("from random import choice as c", "return torch.softmax(h, -1) * c([1.0, 2.0, 3.0])", "random numbers"),
    "random in forward": ("", "import random as r\nreturn torch.softmax(h * r.randint(1, 3), -1)", "random numbers"),
    "numpy": ("import numpy as np", "return torch.softmax(h, -1) * torch.from_numpy(np.random.rand(8, 12)).float()", "random numbers"),
    "the clock": ("import time", "t = time.perf_counter()\nreturn torch.softmax(h, -1) if t > 0 else h * t", "the clock"),
    "the date of a module": ("import datetime", "y = datetime.date.today().year\nreturn torch.softmax(h, -1) if y > 0 else h", "the clock"),
    "the date": ("from datetime import datetime", "y = datetime.now().year\nreturn torch.softmax(h, -1) if y > 0 else h", "the clock"),
}
POSITIVE = "if h[0, 0] > 0:\n    {}\n"
HELD = {
    "a list": "xs = [h]\n" + POSITIVE.format("xs.append(h * 2)") + "return torch.stack(xs).sum(0).exp() + 1",
    "a dict": "d = {'a': h}\n" + POSITIVE.format("d['b'] = h * 2") + "return sum(v.exp() for v in d.values()) + 1",
    "a tensor or None": "m = None\n" + POSITIVE.format("m = torch.sigmoid(h)") + "return torch.exp(h if m is None else h * m) + 1",
    "a function": "f = F.relu if h[0, 0] > 0 else F.gelu\ny = f(h) * 2 + x\nreturn torch.softmax(y, -1)",
    "a lambda": "f = (lambda t: t * 2) if h[0, 0] > 0 else (lambda t: t.sin())\ny = f(h) * 2 + x\nreturn torch.softmax(y, -1)",
    "a function that uses a number": "k = float(h[0, 0]) if h.sum() > 0 else 1.0\n"
    "def f(t):\n    return torch.tanh(t) * k\nreturn torch.softmax(f(h) + f(h * 2), -1)",
    "a function of forward": "def f(t, k=2.0):\n    return torch.tanh(self.fc(t)) * k\ny = f(h)\n"
    + POSITIVE.format("y = y + 1")
    + "return torch.softmax(f(y) + 1, -1)",
    "an infinity": "b = float('inf')\n" + POSITIVE.format("b = float(h[0, 0])") + "return torch.softmax(torch.clamp(h.exp(), max=b) + 1, -1)",
    "a whole number or not": "k = 3 if h[0, 0] > 0 else 3.0\ny = (x > 0).long() * k + 1\nreturn torch.softmax(h * 2, -1), y",
    "a module": "e = self.e[int(h[0, 0] > 0)]\ny = torch.tanh(e(x)) * 2\nreturn torch.softmax(y, -1)",
}


def check_parts(before, init, methods, body):
    lines = "".join(f"        {line}\n" for line in init.split("\n") if line)
    plan, text = checked(written(START + body, "x", "", INIT + lines + methods, before), calls=4)
    assert plan.own, plan.why_none
    return plan, text


@pytest.mark.parametrize("name", quick(STATE, 6))
def test_state_is_read_in_every_call(name):
    *parts, named = STATE[name]
    plan, _ = check_parts(*parts)
    assert any(f"it uses {named}, which forward changes outside the state dict" in why for why in plan.left), plan.left


@pytest.mark.parametrize("name", quick(ASKED, 2))
def test_what_differs_from_call_to_call_is_asked_for_in_every_call(name):
    before, body, why = ASKED[name]
    plan, _ = check_parts(before + "\n\n\n", "", "", body)
    assert any(why in left and left.startswith("line ") for left in plan.left), plan.left


@pytest.mark.parametrize("name", quick(HELD, 3))
def test_a_part_computes_only_with_what_its_variables_held(name):
    check_parts("", "self.e = nn.ModuleList(nn.Linear(12, 12) for _ in range(2))", "", HELD[name])


def test_a_function_of_forward_is_not_taken_for_an_exit():
    plan, _ = check_parts("", "", "", HELD["a function of forward"])
    assert len(plan.captured.parts) > 1 and not any("leave forward" in why or "function" in why for why in plan.left), plan.left
