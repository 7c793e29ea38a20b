"""Tasks written from plain modules: what is recognised without running the source, what the form refuses, and that the result is a task."""

from __future__ import annotations

import ast

import pytest

from verifier.task import Task
from webapp.tasks.modules import is_task, read_module
from webapp.tasks.written import MARK, ModuleForm, plain_part, sizes

SOURCE = '''from torch import nn


class Block(nn.Module):
    """A block of the network."""

    def __init__(self, dim: int, ratio: float = 4.0, *, bias: bool = True):
        super().__init__()
        self.linear = nn.Linear(dim, int(dim * ratio), bias=bias)

    def forward(self, x, mask=None):
        return self.linear(x)


class Net(Block):
    pass


class Helper:
    pass
'''
GIVEN = {"class": "Net", "init.dim": "64", "input.x.shape": "16 x 64"}


def opened(source: str = SOURCE, **changes: str) -> ModuleForm:
    module = read_module(plain_part(source))
    assert module is not None
    return ModuleForm.open(module, GIVEN | changes)


def test_classes_are_recognised_with_inherited_signatures():
    module = read_module(SOURCE)
    assert [found.signature for found in module.classes] == ["Block(dim, ratio=4.0, bias=True)", "Net(dim, ratio=4.0, bias=True)"]
    assert module.classes[0].about == "A block of the network." and module.first.name == "Net"
    assert [(p.name, p.default) for p in module.first.forward] == [("x", None), ("mask", "None")]


def test_a_task_is_no_plain_module_and_nothing_is_run():
    task = opened().task(SOURCE) if opened().is_valid() else ""
    assert is_task(task) and read_module(task) is None
    assert read_module("import os\nos.abort()\n") is None
    assert read_module("class (") is None


def test_what_is_written_is_a_task_that_can_be_written_again():
    form = opened()
    assert form.is_valid()
    task = form.task(SOURCE)
    Task.read(task)
    assert "class Model(Net):" in task and "torch.randn(16, 64),  # x" in task and "return [64, 4.0, True]" in task
    assert "super().__init__(dim, ratio, bias=bias)" in task and "super().forward(x)" in task and "import torch\n" in task
    again = opened(task, **{"init.dim": "32", "input.x.shape": "8, 32"})
    assert again.is_valid()
    rewritten = again.task(task)
    assert rewritten.count(MARK) == 1 and "torch.randn(8, 32)" in rewritten and rewritten.startswith(SOURCE.rstrip())


def test_a_class_that_is_model_already_needs_no_other():
    source = (
        SOURCE.replace("class Net(Block)", "class Model(Block)")
        .replace("*, bias", "bias")
        .replace("from torch import nn", "import torch\nfrom torch import nn")
    )
    form = opened(source, **{"class": "Model"})
    assert form.is_valid()
    written = form.task(source).partition(MARK)[2]
    assert "class Model" not in written and "import torch" not in written and "return [64]" in written


def test_another_class_named_model_is_refused():
    form = opened(SOURCE.replace("class Net(Block)", "class Model(Block)"), **{"class": "Block"})
    assert not form.is_valid() and "rename" in form.problem


def test_arguments_in_the_middle_keep_the_defaults_before_them():
    source = SOURCE.replace("*, bias", "bias").replace("class Net(Block)", "class Model(Block)")
    form = opened(source, **{"class": "Model", "init.bias": "False"})
    assert form.is_valid() and "return [64, 4.0, False]" in form.task(source)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"init.dim": ""}, "has no default"),
        ({"init.dim": "64)"}, "not a Python expression"),
        ({"init.dim": "1 # x"}, "one expression"),
        ({"input.x.shape": "", "input.x.shape.suggested": "16, 64"}, "give the sizes"),
        ({"input.x.shape": "16, n"}, "'n' is not a size"),
        ({"input.x.shape": "99999, 99999, 99999"}, "elements"),
        ({"input.x.dtype": "int64"}, "floating type"),
        ({"input.x.values": "integers", "input.x.dtype": "int64", "input.x.low": "5", "input.x.high": "5"}, "greater than the lowest"),
        ({"input.x.values": "mask"}, "type bool"),
        ({"input.x.values": "expression"}, "give a value"),
        ({"input.x.values": "default", "input.mask.values": "ones", "input.mask.shape": "4"}, "left out"),
    ],
)
def test_what_cannot_be_is_refused_at_its_field(change: dict, said: str):
    form = opened(**change)
    assert not form.is_valid()
    found = [a.error for a in form.arguments] + [error for one in form.inputs for error in one.errors.values()]
    assert any(said in error for error in found), found


def test_any_number_of_arguments_is_refused_with_its_line():
    module = read_module(SOURCE.replace("x, mask=None", "*inputs"))
    assert module.classes[0].problems[0].line == 11 and "any number" in module.classes[0].problems[0].message


@pytest.mark.parametrize(
    ("values", "dtype", "written"),
    [
        ("normal", "float32", "torch.randn(16, 64)"),
        ("uniform", "bfloat16", "torch.rand(16, 64, dtype=torch.bfloat16)"),
        ("integers", "int64", "torch.randint(0, 100, (16, 64))"),
        ("integers", "int32", "torch.randint(0, 100, (16, 64), dtype=torch.int32)"),
        ("mask", "bool", "torch.rand(16, 64) < 0.5"),
        ("zeros", "uint8", "torch.zeros(16, 64, dtype=torch.uint8)"),
    ],
)
def test_values_of_every_kind(values: str, dtype: str, written: str):
    form = opened(**{"input.x.values": values, "input.x.dtype": dtype})
    assert form.is_valid()
    assert f"        {written},  # x" in form.task(SOURCE)
    ast.parse(form.task(SOURCE))


def test_names_say_what_a_tensor_holds():
    source = SOURCE.replace("x, mask=None", "input_ids, attention_mask, scale: float, names: list[str] = ()")
    form = opened(source)
    assert [(one.values, one.dtype) for one in form.inputs] == [("integers", "int64"), ("mask", "bool"), ("plain", "float32"), ("default", "float32")]


def test_sizes_are_read_as_people_write_them():
    assert sizes("16, 1024") == sizes("(16, 1024)") == sizes("16 x 1024") == sizes("16×1024") == sizes("[16 1024]") == (16, 1024)
    assert sizes("()") == () and sizes("7,") == (7,)


def filled_in(source: str, **changes: str) -> dict[str, str]:
    """Returns a form for `source` as a browser posts it."""
    return {"of": opened(source, **changes).of} | GIVEN | changes


OTHER = "import torch\nfrom torch import nn\n\n\nclass Gate(nn.Module):\n    def __init__(self, dim: int = 32):\n        super().__init__()\n\n" + (
    "    def forward(self, x):\n        return x\n"
)


@pytest.mark.parametrize(
    ("now", "kept"),
    [
        (SOURCE + "# a comment more\n", ["64", "4.0", "True"]),
        (SOURCE.replace("ratio: float = 4.0", "ratio: float = 2.0"), ["64", "2.0", "True"]),
        (SOURCE.replace("dim: int", "dim: int = 16"), ["16", "4.0", "True"]),
        (SOURCE.replace("class Net(Block)", "class Other(Block)"), ["", "4.0", "True"]),
        (OTHER, ["32"]),
    ],
    ids=["edited", "another default", "a default at last", "renamed", "another module"],
)
def test_values_belong_to_the_argument_that_they_were_given_for(now: str, kept: list[str]):
    module = read_module(now)
    form = ModuleForm.open(module, filled_in(SOURCE, **{"init.ratio": "4.0", "init.bias": "True"}))
    assert [argument.value for argument in form.arguments] == kept
    assert [one.shape for one in form.inputs][0] == ("16 x 64" if form.chosen.name == "Net" else "")


def test_another_class_of_the_same_source_has_its_own_defaults():
    source = OTHER + "\n\n" + OTHER.split("nn\n\n\n")[1].replace("Gate", "Net").replace("32", "8")
    form = ModuleForm.open(read_module(source), filled_in(source, **{"init.dim": "8"}) | {"class": "Gate"})
    assert form.chosen.name == "Gate" and form.arguments[0].value == "32" and form.inputs[0].shape == "16 x 64"


@pytest.mark.parametrize("of", ["", "{", "[]", '["Net"]', '["Net", 3]', '[["Net"], {}]', "null"])
def test_a_form_that_says_it_wrongly_keeps_nothing(of: str):
    form = ModuleForm.open(read_module(SOURCE), GIVEN | {"of": of})
    assert form.arguments[0].value == "" and form.inputs[0].shape == ""


TABLE = """import torch
from torch import nn
import torch.nn.functional as F

WORDS = 500


class Tokens(nn.Module):
    def __init__(self, rows, width):
        super().__init__()
        self.inner = nn.Embedding(rows, width)

    def forward(self, at):
        return self.inner(at.long())


class Net(nn.Module):
    def __init__(self, vocab: int, width: int = 8, length: int = 64):
        super().__init__()
        self.length = length
        self.table = TABLE

    def forward(self, ids, x=None):
        return CALL
"""


@pytest.mark.parametrize(
    ("table", "call", "given", "high"),
    [
        ("nn.Embedding(1000, width)", "self.table(ids)", {}, "1000"),
        ("nn.Embedding(vocab, width)", "self.table(ids)", {"init.vocab": "30_000"}, "30000"),
        ("nn.Embedding(vocab, width)", "self.table(ids)", {}, ""),
        ("torch.nn.Embedding(embedding_dim=width, num_embeddings=vocab + 1)", "self.table(ids[:, 0].long())", {"init.vocab": "9"}, "10"),
        ("nn.EmbeddingBag(WORDS, width)", "self.table(ids.view(-1, 4))", {}, "500"),
        ("nn.Embedding(self.length // 2, width)", "self.table(ids)", {}, "32"),
        ("nn.Embedding(self.length // 2, width)", "self.table(ids)", {"init.length": "100"}, "50"),
        ("nn.Sequential(nn.Embedding(77, width), nn.Linear(width, 1))", "self.table(ids)", {}, "77"),
        ("nn.Parameter(torch.randn(40, width))", "F.embedding(ids, self.table)", {}, "40"),
        ("Tokens(vocab, width)", "self.table(ids)", {"init.vocab": "12"}, "12"),
        ("Tokens(width=width, rows=2 * vocab)", "self.table(at=ids)", {"init.vocab": "12"}, "24"),
        ("nn.Linear(vocab, width)", "self.table(ids)", {"init.vocab": "12"}, "100"),
    ],
)
def test_indices_stay_within_their_table(table: str, call: str, given: dict, high: str):
    source = TABLE.replace("TABLE", table).replace("CALL", call)
    form = ModuleForm.open(read_module(source), given)
    ids = form.inputs[0]
    assert (ids.values, ids.dtype, ids.low, ids.high) == ("integers", "int64", "0", high)


def test_an_argument_of_any_name_that_is_looked_up_is_an_index():
    source = TABLE.replace("TABLE", "nn.Embedding(10, width)").replace("CALL", "self.table(stuff)").replace("ids, x=None", "stuff")
    assert [(one.values, one.dtype, one.high) for one in ModuleForm.open(read_module(source), {}).inputs] == [("integers", "int64", "10")]


def test_the_range_follows_its_table_until_somebody_changes_it():
    source = TABLE.replace("TABLE", "nn.Embedding(vocab, width)").replace("CALL", "self.table(ids)")
    module = read_module(source)
    posted = {"init.vocab": "20", "input.ids.shape": "4", "input.ids.high": "10", "input.ids.high.suggested": "10"}
    assert ModuleForm.open(module, posted).inputs[0].high == "20"
    assert ModuleForm.open(module, posted | {"input.ids.high": "7"}).inputs[0].high == "7"
    wide = ModuleForm.open(module, posted | {"input.ids.high": "21"})
    assert not wide.is_valid() and "the table has 20 rows (`vocab`), so indices are 0 to 19" in wide.inputs[0].errors["high"]
    open_end = ModuleForm.open(module, {"input.ids.shape": "4"})
    assert not open_end.is_valid() and "give the number of rows, `vocab`" in open_end.inputs[0].errors["high"]
    right = ModuleForm.open(module, posted)
    assert right.is_valid() and "torch.randint(0, 20, (4,)),  # ids" in right.task(source)


def test_a_source_that_goes_in_circles_ends():
    source = TABLE.replace("class Tokens(nn.Module)", "class Tokens(Net, nn.Module)").replace("class Net(nn.Module)", "class Net(Tokens)")
    module = read_module(source.replace("TABLE", "Net(vocab)").replace("CALL", "self.table(ids)"))
    assert ModuleForm.open(module, {"init.vocab": "3"}).inputs


@pytest.mark.parametrize(
    ("table", "call", "given", "shape"),
    [
        ("nn.Linear(width, 4)", "self.table(ids)", {}, "16, 8"),
        ("nn.Linear(in_features=width * 2, out_features=4)", "self.table(ids)", {"init.width": "32"}, "16, 64"),
        ("nn.Conv2d(3, width, 3)", "self.table(ids)", {}, "8, 3, 64, 64"),
        ("nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 1))", "self.table(ids)", {}, "16, 128, 8"),
        ("nn.LSTM(self.length, width)", "self.table(ids)[0]", {}, "32, 16, 64"),
        ("nn.GroupNorm(2, width)", "torch.relu(self.table(ids))", {}, "8, 8, 32, 32"),
        ("Inner(width)", "self.table(ids)", {"init.width": "12"}, "16, 12"),
        ("nn.Linear(vocab, 4)", "self.table(ids)", {}, ""),
        ("nn.Linear(width, 4)", "self.table(ids.view(-1, 8))", {}, ""),
    ],
)
def test_a_shape_is_filled_in_as_far_as_the_layers_tell(table: str, call: str, given: dict, shape: str):
    inner = "class Inner(nn.Module):\n    def __init__(self, size):\n        super().__init__()\n        self.first = nn.Linear(size, 2)\n\n"
    inner += "    def forward(self, value):\n        return self.first(value)\n\n\nclass Net("
    source = TABLE.replace("TABLE", table).replace("CALL", call).replace("class Net(", inner)
    form = ModuleForm.open(read_module(source), given)
    assert form.chosen.name == "Net" and form.inputs[0].shape == shape
    assert ("shape of ids" in form.missing) is (not shape) and ("vocab" in form.missing)


def test_a_suggested_shape_follows_the_constructor_until_somebody_changes_it():
    module = read_module(TABLE.replace("TABLE", "nn.Linear(width, 4)").replace("CALL", "self.table(ids)"))
    posted = {"init.width": "32", "input.ids.shape": "16, 8", "input.ids.shape.suggested": "16, 8"}
    assert ModuleForm.open(module, posted).inputs[0].shape == "16, 32"
    assert ModuleForm.open(module, posted | {"input.ids.shape": "4, 8"}).inputs[0].shape == "4, 8"
