"""Numbers, flags, words and None among the arguments are replaced, one argument at a time."""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch

from verifier.correctness.arguments import EACH, SMALLER, alternatives, other_values, places, words
from verifier.judge.session import Values
from verifier.layout import Spec, decode, encode

SOURCE = '''
class Model:
    """Not a word that is compared."""

    def forward(self, x, how):
        if how == "none":
            return x
        return {"mean": x.mean, "sum": x.sum}[how]()

def get_inputs():
    return [1, ["first", "a longer text"]]
'''


@dataclass
class Settings:
    slope: float = 0.5
    name: str = "sum"


def values(*arguments) -> Values:
    tensors: list[torch.Tensor] = []
    tree = encode(list(arguments), tensors, whole=True)
    return Values(tree, [Spec.of(tensor) for tensor in tensors], tensors)


def read(own: Values, source: str = "") -> dict[str, list]:
    """Returns, for each argument, the arguments of every trial that changes it."""
    found = {}
    for name, ways in alternatives(own.tree, source, random.Random(5)):
        made = [way(own, 1) for way in ways]
        found[name] = [decode(one.tree, one.tensors)[1:] for one in made if one is not None]
    return found


def test_each_argument_changes_by_itself():
    own = values(torch.ones(2), 0.5, 3, {"scale": 2.0}, (True, 2))
    found = read(own)
    ((first, *rest),), ((number, kept, inner, pair),) = found.pop("other numbers (argument 1)"), found.pop("other numbers (argument 3)")
    assert SMALLER[0] <= first / 0.5 <= SMALLER[1] and rest == [3, {"scale": 2.0}, (True, 2)]
    assert SMALLER[0] <= inner["scale"] / 2.0 <= SMALLER[1] and (number, kept, pair) == (0.5, 3, (True, 2))
    assert found == {
        "other integers (argument 2)": [[0.5, other, {"scale": 2.0}, (True, 2)] for other in (2, 1, 6)],
        "other integers (argument 4)": [[0.5, 3, {"scale": 2.0}, (True, other)] for other in (1, 4)],
        "other flags": [[0.5, 3, {"scale": 2.0}, (False, 2)]],
    }


def test_no_program_can_know_the_other_numbers():
    draws = [(other_values(0.1, "", random.Random(seed))[0], other_values(64, "", random.Random(seed))[0]) for seed in range(32)]
    assert len({slope for slope, _ in draws}) == 32 and len({window for _, window in draws}) > 6
    assert all(0.04 <= slope <= 0.09 and 48 <= window <= 63 for slope, window in draws)


def test_fields_of_objects_change_too():
    found = read(values(torch.ones(2), Settings(), Settings()), SOURCE)
    assert list(found)[:2] == ["other numbers (argument 1, slope)", "other numbers (argument 2, slope)"]
    (first, second), *_ = found["other words (argument 1, name)"]
    assert (first["name"], second["name"]) == ("mean", "sum") and first["slope"] == 0.5


def test_integers_come_nearer_to_zero_and_stay_sizes_and_dimensions():
    draws = random.Random(5)
    assert [other_values(number, "", draws)[0] for number in (4, 1, 0, -1, -3)] == [3, 0, 1, 0, -2]
    assert 9 <= other_values(12, "", draws)[0] <= 11 and set(other_values(12, "", draws)[-3:]) >= {6, 24} and other_values(2, "", draws) == [1, 4]


def test_words_are_those_that_the_task_or_torch_distinguishes():
    assert words(SOURCE) == ["none", "mean", "sum", "first"]
    draws = random.Random(5)
    assert other_values("mean", SOURCE, draws) == ["sum", "none", "first"] and other_values("bilinear", "", draws)[:2] == ["nearest", "bicubic"]
    assert other_values("nothing like it", "", draws) == []


def test_tensors_take_the_place_of_none():
    x = torch.randn(4, 6)
    found = [one[0] for one in read(values(x, None))["values for None"]]
    assert [(tuple(one.shape), one.dtype) for one in found] == [((4, 6), torch.float32), ((6,), torch.float32), ((4, 6), torch.bool)]
    assert bool(found[2].any(-1).all()) and not read(values(torch.arange(3), None))["values for None"]


def test_only_some_of_many_arguments_of_a_kind_change_alone_and_the_others_together():
    own = values(torch.ones(2), *range(20))
    found = read(own)
    assert len(found) == EACH + 1 and len(places(own.tree)) == 20
    (together,) = found["other integers (the others)"]
    assert together[:EACH] == list(range(EACH)) and all(made != number for number, made in enumerate(together) if number >= EACH)


def test_without_such_arguments_there_is_nothing_to_try():
    assert read(values(torch.ones(2), [torch.ones(2)])) == {}


def test_members_of_the_tasks_own_enumerations_change():
    source = "class Gate(Enum):\n    OPEN = 1\n    SHUT = 2\n    _own = 3\n"
    tree = {"l": [{"g": ["", "Gate.OPEN"]}, {"g": ["torch", "relu"]}, {"g": ["", "Gate"]}]}
    ((name, (way,)),) = alternatives(tree, source, random.Random(5))
    made = way(Values(tree, [], []), 1)
    assert name == "other members" and made is not None and made.tree["l"][0] == {"g": ["", "Gate.SHUT"]} and made.tree["l"][1:] == tree["l"][1:]
