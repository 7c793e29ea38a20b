"""Arguments of any class on their way from a task to a program, state outside the state dict, and the admission messages."""

import sys
from collections import OrderedDict, namedtuple
from dataclasses import dataclass, field
from enum import Enum, Flag, IntEnum
from functools import partial
from types import ModuleType

import pytest
import torch
from torch import nn

from verifier.judge.admission import task_problem
from verifier.judge.party_failure import PartyFailure, without_gpu
from verifier.layout import LayoutError, Spec, decode, encode
from verifier.parties.naming import resolver
from verifier.parties.plain_state import PlainState, history_matters
from verifier.parties.role import map_tensors
from verifier.source import SourceError, import_problems, parse
from verifier.task import ALLOWED_IMPORTS, Task, allowed_imports

Pair = namedtuple("Pair", ["a", "b"])


@dataclass(frozen=True)
class Conf:
    width: int = 4
    weights: list = field(default_factory=list)

    def double(self) -> int:
        return 2 * self.width


@pytest.fixture
def own(monkeypatch):
    """Presents this module's classes as those of a task."""
    task = ModuleType("task")
    task.Pair, task.Conf = Pair, Conf
    for cls in (Pair, Conf):
        monkeypatch.setattr(cls, "__module__", "task")
    monkeypatch.setitem(sys.modules, "task", task)
    return task


def across(value, module):
    tensors: list[torch.Tensor] = []
    tree = encode(value, tensors, whole=True)
    decode(tree, tensors)  # the judge's view, which resolves no names
    return decode(tree, tensors, resolve=resolver(module))


def test_objects_are_made_again(own):
    x = torch.rand(3)
    pair, conf, named, device, size, table = across(
        [Pair(x, {1: x}), Conf(3, [x]), OrderedDict(a=x), torch.device("cpu"), torch.Size([2, 3]), {"s": {"t"}}], own
    )
    assert isinstance(pair, Pair) and torch.equal(pair.a, x) and torch.equal(pair.b[1], x)
    assert isinstance(conf, Conf) and conf.double() == 6 and torch.equal(conf.weights[0], x)
    assert isinstance(named, OrderedDict) and device == torch.device("cpu") and size == (2, 3) and table == {"s": {"t"}}


def test_modules_classes_and_functions_are_made_again(own):
    block = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    made, norm, act, function, part = across([block, nn.LayerNorm, nn.GELU(), torch.relu, partial(nn.LayerNorm, eps=1e-3)], own)
    x = torch.rand(5, 4)
    assert torch.equal(made.eval()(x), block.eval()(x)) and isinstance(made[0].weight, nn.Parameter)
    assert norm is nn.LayerNorm and torch.equal(act(x), nn.functional.gelu(x)) and function is torch.relu and part(4).eps == 1e-3


def test_a_program_without_the_class_gets_its_fields(own):
    pair, conf = across([Pair(1, 2), Conf(3)], ModuleType("program"))
    assert pair.a == 1 and pair[1] == 2 and conf.width == 3


def test_what_has_no_name_is_refused():
    with pytest.raises(LayoutError, match="lambda"):
        encode([lambda x: x], [], whole=True)


def test_results_are_compared_by_their_fields(own):
    tensors: list[torch.Tensor] = []
    assert encode({"p": Pair(1, torch.ones(2)), "c": Conf(3), 7: 0.5}, tensors) == {
        "d": {"p": {"u": [{"v": 1}, {"t": 0}]}, "c": {"d": {"width": {"v": 3}, "weights": {"l": []}}}, "7": {"t": 1}}
    }
    assert tensors[1].item() == 0.5


def test_tensors_in_objects_are_mapped(own):
    pair = map_tensors(Pair(torch.ones(2), Conf(1, [torch.ones(2)])), lambda tensor: tensor * 2)
    assert pair.a.tolist() == [2, 2] and pair.b.weights[0].tolist() == [2, 2] and isinstance(pair.b, Conf)


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.count, self.seen, self.hidden, self.generator = 0, [], torch.zeros(2), torch.Generator().manual_seed(1)
        self.inner = nn.Identity()

    def forward(self, x):
        self.count += 1
        self.seen.append(x)
        self.hidden = self.hidden + x
        self.hidden.mul_(1.0)
        self.inner.last = x
        return x * self.count + torch.rand(2, generator=self.generator)


def test_state_outside_of_the_state_dict_is_named_and_put_back():
    model = Counting()
    first = None
    for _ in range(2):
        with PlainState(model) as plain:
            result = model(torch.ones(2))
            assert plain.changed() == ["self.count", "self.seen", "self.hidden", "self.generator", "self.inner.last"]
        assert (model.count, model.seen, model.hidden.tolist()) == (0, [], [0, 0]) and not hasattr(model.inner, "last")
        assert first is None or torch.equal(result, first)
        first = result


@pytest.mark.parametrize(("kept", "matters"), [("self.n += 1; return x * self.n", True), ("self.n += 1; return x * 2", False)])
def test_a_counter_that_nobody_reads_is_no_history(kept, matters):
    names: dict = {"nn": nn}
    exec(f"class M(nn.Module):\n    n = 0\n    def forward(self, x): {kept}\n", names)
    model = names["M"]()
    model.n = 0
    assert history_matters(model, lambda one, other: [one(torch.ones(2) * (2 if other else 1))]) is matters
    assert model.n == 0


MODEL = (
    "import torch\nimport torch.nn as nn\n{more}\nclass Model({base}):\n    pass\n\n"
    "def get_inputs():\n    return []\n\ndef get_init_inputs():\n    return []\n"
)


def test_a_forward_may_be_inherited():
    assert Task.read(MODEL.format(more="", base="nn.Sequential"))
    with pytest.raises(SourceError, match="no method `forward`"):
        Task.read(MODEL.format(more="", base="nn.Module"))


def test_a_guarded_import_is_none():
    guarded = "try:\n    import not_there\nexcept ImportError:\n    not_there = None\n"
    assert not import_problems(parse(guarded), ALLOWED_IMPORTS)
    assert [p.line for p in import_problems(parse("try:\n    import not_there\nfinally:\n    pass\n"), ALLOWED_IMPORTS)] == [2]


def test_model_libraries_may_be_imported_and_the_operator_names_others():
    source = MODEL.format(more="import transformers\nimport open_clip", base="nn.Sequential")
    with pytest.raises(SourceError, match="'open_clip' is not allowed") as refused:
        Task.read(source)
    assert "transformers" not in str(refused.value) and "STITCH_TASK_IMPORTS" in refused.value.problems[0].hint
    assert Task.read(source, allowed_imports("transformers, open_clip"))
    with pytest.raises(SourceError, match="'transformers' is not allowed"):
        Task.read(source, allowed_imports(""))


def test_a_byte_order_mark_is_read_over():
    assert Task.read("\ufeff" + MODEL.format(more="", base="nn.Sequential"))


@pytest.mark.parametrize(
    "text",
    [
        "Torch not compiled with CUDA enabled",
        "Cannot get CUDA generator without ATen_cuda library. PyTorch splits",
        "CUDA_HOME environment variable is not set.",
    ],
)
def test_a_source_for_a_gpu_is_told_so(text):
    assert without_gpu(text) == "it needs a GPU: choose cuda:0" and without_gpu("another error") == "another error"


class Kind(Enum):
    RELU = "relu"
    GELU = "gelu"


class Number(IntEnum):
    ONE = 1


class Choice(Flag):
    A = 1
    B = 2


def test_members_of_enumerations_are_passed_on(own):
    for cls in (Kind, Number, Choice):
        setattr(own, cls.__name__, cls)
        cls.__module__ = "task"
    given = [Kind.GELU, Number.ONE, {"kind": Kind.RELU}]
    back = decode(encode(given, [], whole=True), [], resolve=resolver(own))
    assert back == given and back[0] is Kind.GELU and back[1] is Number.ONE
    with pytest.raises(LayoutError, match="combination of members of Choice"):
        encode([Choice.A | Choice.B], [], whole=True)


REST = "def get_inputs():\n    return []\ndef get_init_inputs():\n    return []\n"
CLASS = "import torch.nn as nn\nclass Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n        {}\n    {}\n"
UNCLEAR = {
    "assigned behind the class": (CLASS.format("pass", "pass") + "Model.forward = lambda self, x: x\n" + REST, 7, "`forward` of `Model` is assigned"),
    "assigned in the constructor": (CLASS.format("self.forward = self.run", "def run(self, x): pass") + REST, 5, "`forward` of `Model` is assigned"),
    "assigned in the class": (CLASS.format("pass", "forward = print") + REST, 6, "`forward` of `Model` is assigned"),
    "set": (CLASS.format("pass", "pass") + "setattr(Model, 'forward', print)\n" + REST, 7, "`forward` of `Model` is assigned"),
    "on a condition": (CLASS.format("pass", "if 1:\n        def forward(self): pass") + REST, 7, "`forward` of `Model` is defined within"),
    "a coroutine": (CLASS.format("pass", "async def forward(self): pass") + REST, 6, "`forward` of `Model` is a coroutine"),
    "missing": (CLASS.format("pass", "pass") + REST, 2, "`Model` has no method `forward`"),
    "another class": ("import torch.nn as nn\nModel = nn.Linear\n" + REST, 2, "`Model` is only a name for a class that is defined elsewhere"),
    "a class on a condition": ("if 1:\n    class Model:\n        def forward(self): pass\n" + REST, 2, "`class Model` is defined within"),
    "inputs on a condition": (CLASS.format("pass", "def forward(self): pass") + "if 1:\n    def get_inputs(): 0\nget_init_inputs = lambda: []\n", 8,
                              "`get_inputs` is defined within another statement"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNCLEAR)
def test_what_cannot_be_read_is_refused_with_its_line_and_what_to_do(name):
    source, line, message = UNCLEAR[name]
    with pytest.raises(SourceError) as error:
        Task.read(source)
    (problem,) = error.value.problems
    assert problem.line == line and problem.message.startswith(message) and problem.hint


@pytest.mark.parametrize(
    ("source", "message", "hint"),
    [
        ("class M[T]:\n    pass\n", "a type parameter", "typing.Generic"),
        ("def f[T: int](x: T): ...\n", "a type parameter", "typing.Generic"),
        ("type Pair[T] = tuple[T, T]\n", "the statement `type X = ...` needs Python 3.12", "assign the type"),
        ("print(f'{d['k']}')\n", "an f-string with its own quotes", "other quotes"),
        ("print(f'{chr(10) + \"\\n\"}')\n", "an f-string with a backslash", "assign the value"),
    ],
)
@pytest.mark.skipif(sys.version_info >= (3, 12), reason="this Python can read them")
def test_syntax_of_a_newer_python_is_named_as_such(source, message, hint):
    with pytest.raises(SourceError) as error:
        parse(source)
    (problem,) = error.value.problems
    assert problem.line == 1 and message in problem.message and "needs Python 3.12" in problem.message and hint in problem.hint


def test_other_errors_of_syntax_are_in_words_of_python():
    with pytest.raises(SourceError, match="f-string: expecting '}'"):
        parse("print(f'{d')\n")
    with pytest.raises(SourceError, match="line 1: syntax error: the source is in a Markdown fence"):
        parse("```python\nx = 1\n```\n")
    (problem,) = import_problems(parse("from .layers import Block\n"), ALLOWED_IMPORTS)
    assert problem.message == "relative imports are not allowed" and problem.hint.startswith("copy what it imports")


WITH_TWO = CLASS.format("pass", "def forward(self, x, y): pass") + REST


@pytest.mark.parametrize(
    ("request_", "error_class", "said", "line", "hint"),
    [
        ("run", "TypeError", "Model.forward() missing 1 required positional argument: 'y'", 6, "get_inputs returns a list with one value"),
        ("construct", "TypeError", "Model.__init__() takes 1 positional argument but 2 were given", 3, "get_init_inputs returns a list with"),
        ("inputs", "TypeError", "get_inputs() missing 1 required positional argument: 'n'", 7, "get_inputs is called without arguments"),
        ("inputs", "LayoutError", "a value of type 'object' cannot be passed on", 7, ""),
        ("construct", "LayoutError", "get_init_inputs returns 'int'; it must return a list", 9, ""),
        ("construct", "LayoutError", "`Model` must be a subclass of torch.nn.Module", 2, ""),
        ("run", "LayoutError", "a value of type 'function' cannot be passed on", 6, ""),
    ],
)
def test_what_fails_before_its_first_statement_has_a_line(request_, error_class, said, line, hint):
    problem = task_problem(PartyFailure("raised", said, error_class=error_class, request=request_), WITH_TWO)
    assert problem.line == line and said in problem.message and problem.hint.startswith(hint)


def test_arguments_by_keyword_only_are_named():
    source = "from torch import nn\nclass Model(nn.Module):\n    def forward(self, x, *, lengths, scale): pass\n"
    said = "Model.forward() takes 2 positional arguments but 3 were given"
    hint = task_problem(PartyFailure("raised", said, error_class="TypeError", request="call"), source).hint
    assert hint.startswith("values are passed by position: remove the `*` before lengths and scale, or submit the module without")


@pytest.mark.parametrize("inputs", ["lambda: []", "make", "functools.partial(make, 3)"])
def test_functions_of_a_task_may_be_names_for_others(inputs):
    source = CLASS.format("pass", "def forward(self): pass") + "import functools\ndef make(n=1): return []\n"
    assert Task.read(f"{source}get_inputs = {inputs}\nget_init_inputs = make\n")


def test_a_type_that_is_not_carried_is_refused_with_a_way():
    with pytest.raises(LayoutError, match=r"uint16 is not supported; keep its bytes as torch.uint8 and read them by .*in forward"):
        Spec.of(torch.zeros(2).to(torch.uint16))
