"""Programs do not depend on how a task's source is written: each form can be captured and printed, and its program is correct."""

import pytest

from compiler.program.task_text import TaskText

PREFIX = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n\n"
TAIL = "\n\ndef get_inputs():\n    return [torch.randn(8, 12)]\n\n\ndef get_init_inputs():\n    return []\n"
CLASS = "class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
MODEL = CLASS + "        self.fc = nn.Linear(12, 12)\n\n    def forward(self, x):\n        return torch.tanh(self.fc(x)) * 2\n"
TWO_SPACES = "\n".join(" " * ((len(line) - len(line.lstrip())) // 2) + line.lstrip() for line in MODEL.splitlines()) + "\n"
WITH_STATE = (
    CLASS + "        self.fc = nn.Linear(12, 12)\n        self.k = {k}\n\n    def forward(self, x):\n        return torch.tanh(self.fc(x)) * self.k\n"
)

FORMS = {
    "two spaces": TWO_SPACES,
    "tabs": MODEL.replace("    ", "\t"),
    "other line ends": MODEL.replace("\n", "\r\n"),
    "one line": "class Model(nn.Module):\n    def forward(self, x): y = x * 2; return torch.softmax(y, -1)\n",
    "another name for self": MODEL.replace("self", "this"),
    "self among the arguments": MODEL.replace("(self, x)", "(*args)").replace("return ", "self, x = args; return "),
    "statements of the module": (
        "TABLE = {}\nTABLE['k'] = 2.0\nPARTS = []\nfor i in range(3):\n    PARTS.append(i)\ntry:\n    import not_installed\nexcept ImportError:\n"
        "    not_installed = None\nif not_installed is None:\n    MORE = 1.0\nwith torch.no_grad():\n    ROW = torch.ones(12)\n"
        + WITH_STATE.format(k="TABLE['k'] + sum(PARTS) + MORE + ROW.sum().item()")
    ),
    "a registry by decorator": (
        "ACTS = {}\ndef register(f):\n    ACTS[f.__name__] = f\n    return f\n\n@register\ndef squared(x):\n    return F.relu(x) ** 2\n\n"
        + CLASS
        + "        self.act = ACTS['squared']\n\n    def forward(self, x):\n        return self.act(x) + 1\n"
    ),
    "a registry by subclass": (
        "KINDS = {}\nclass Base(nn.Module):\n    def __init_subclass__(cls):\n        KINDS[cls.__name__] = cls\n\nclass Swish(Base):\n"
        "    def forward(self, x):\n        return x * torch.sigmoid(x)\n\n"
        + CLASS
        + "        self.act = KINDS['Swish']()\n\n    def forward(self, x):\n        return self.act(x) + 1\n"
    ),
    "an attribute after the class": WITH_STATE.format(k="self.EXTRA") + "\n\nModel.EXTRA = 3.0\n",
    "its own name": WITH_STATE.format(k="Model.FACTOR").replace("nn.Module):\n", "nn.Module):\n    FACTOR = 3.0\n", 1),
    "private names": (
        CLASS + "        self.__w = nn.Parameter(torch.ones(12))\n        self.__grow()\n\n    def __grow(self):\n        self.__w.data *= 2\n\n"
        "    def forward(self, x):\n        return torch.tanh(x * self.__w) + 1\n"
    ),
    "a call of its own and hooks": (
        CLASS + "        self.register_forward_hook(lambda m, i, o: o + 1)\n\n"
        "    def __call__(self, x):\n        return super().__call__(x * 3) * 2\n\n"
        "    def forward(self, x):\n        return torch.tanh(x) * 2\n"
    ),
    "a call of its own and a setting that cannot be copied": (
        "class Settings(dict):\n    __getattr__ = dict.__getitem__\n\n" + CLASS + "        self.cfg = Settings(gain=2.0)\n\n"
        "    def __call__(self, x):\n        return super().__call__(x * self.cfg.gain)\n\n"
        "    def forward(self, x):\n        return torch.tanh(x) * 2\n"
    ),
    "an inherited forward": (
        "class Base(nn.Module):\n    def forward(self, x):\n        return self.post(torch.tanh(x))\n\n    def post(self, x):\n        return x\n\n"
        "class Model(Base):\n    def post(self, x):\n        return x * 2 + 1\n"
    ),
    "a forward of torch": (
        "class Model(nn.Sequential):\n    def __init__(self):\n        super().__init__(nn.Linear(12, 12), nn.GELU(), nn.LayerNorm(12))\n"
    ),
    "any arguments": MODEL.replace("(self, x)", "(self, *args, scale=2.0, **more)").replace("(x)", "(args[0])").replace("* 2", "* scale"),
    "a large constant of the module": (
        "torch.manual_seed(1)\nBIG = torch.randn(12, 40)\nHELD = [torch.ones(30, 12)]\n"
        + MODEL.replace("* 2", "@ BIG.to(x.dtype) @ x.new_ones(40, 12) + HELD[0].sum().to(x.dtype)")
    ),
    "a large constant of forward": MODEL.replace("* 2", "* torch.tensor([[float(i * j) for j in range(12)] for i in range(30)]).sum(0)"),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_a_program_is_right_however_its_task_was_typed(form, compiled):
    made = compiled(PREFIX + FORMS[form] + TAIL)
    assert made.own, made.plan.why_none
    assert "\t" not in made.text.split("class ModelNew")[1]
    made.check()


def test_a_byte_order_mark_is_none_of_the_source():
    text = TaskText("\ufeff" + PREFIX + MODEL + TAIL)
    assert text.imports() == ["import torch.nn as nn", "import torch"]


def test_statements_that_nothing_kept_reads_are_left_out():
    source = PREFIX + "UNUSED = {}\nUNUSED['a'] = 1\nprint('hello')\nif __name__ == '__main__':\n    UNUSED.clear()\n" + MODEL + TAIL
    assert TaskText(source).definitions() == [] and TaskText(source).epilogue() == []


def test_a_class_of_an_argument_is_kept():
    conf = "from dataclasses import dataclass\n@dataclass\nclass Conf:\n    width: int = 12\n\n"
    source = (
        PREFIX + conf + MODEL.replace("(self)", "(self, conf)").replace("(12, 12)", "(conf.width, 12)") + TAIL.replace("return []", "return [Conf()]")
    )
    assert any("class Conf" in part for part in TaskText(source).definitions())
