"""Forms that a source may take: overloads of forward, classes that register themselves, and objects that refer to each other."""

import pytest

HEAD = "import abc\nimport logging\nfrom typing import overload\n\nimport torch\nimport torch.nn as nn\n\nlogger = logging.getLogger(__name__)\n\n\n"
TAIL = "\n\ndef get_inputs():\n    return [torch.randn(8, 512)]\n\n\ndef get_init_inputs():\n    return []\n"
PARTS = (
    "class Layer(nn.Module, metaclass=abc.ABCMeta):\n    known = {}\n\n    def __init_subclass__(cls, key=None):\n"
    "        super().__init_subclass__()\n        Layer.known[key] = cls\n\n\nclass Named(Layer):\n    pass\n\n\nclass Swish(Named, key='swish'):\n"
    "    def forward(self, x):\n        return x * x.sigmoid()\n\n\n"
)
TABLES = (
    "class Kinds(type):\n    known = {}\n\n    def __init__(cls, name, *args):\n        Kinds.known[name] = cls\n\n"
    "    @classmethod\n    def add(cls, layer):\n        cls.known['added'] = layer\n        return layer\n\n\n"
    "class Layer(nn.Module, metaclass=Kinds):\n    pass\n\n\n"
    "class Swish(Layer):\n    def forward(self, x):\n        return x * x.sigmoid()\n\n\n"
    "@Kinds.add\nclass Double(nn.Module):\n    k = 1.0\n\n    def forward(self, x):\n        return x * self.k\n\n\nsetattr(Double, 'k', 2.0)\n\n\n"
)
FORMS = {
    "a logger": "class Model(nn.Module):\n    def forward(self, x):\n        logger.debug('in %s', x.shape)\n        return x.sigmoid() * x + 1\n",
    "overloads": (
        "class Model(nn.Module):\n    @overload\n    def forward(self, x: int): ...\n\n    def forward(self, x, y=None):\n"
        "        x = x if y is None else x * y\n        return x.tanh() * 2 + 1\n"
    ),
    "subclasses that register themselves": (
        PARTS + "class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.act = Layer.known['swish']()\n\n"
        "    def forward(self, x):\n        return self.act(x) + 1\n"
    ),
    "classes that hold a table of others": (
        TABLES + "class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.acts = nn.Sequential(Kinds.known['Swish'](), Kinds.known['added']())\n\n"
        "    def forward(self, x):\n        return self.acts(x) + 1\n"
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_program_is_what_the_source_says(form, compiled):
    made = compiled(HEAD + FORMS[form] + TAIL)
    assert made.own
    made.check()
