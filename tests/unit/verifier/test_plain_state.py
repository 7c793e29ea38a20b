"""What is put back of a source's variables: the stranger's values, never the verifier's own objects."""

from __future__ import annotations

import random
import sys
from types import ModuleType

import pytest
import torch

from verifier.parties.plain_state import Variables


class OfTheVerifier:
    __module__ = "verifier.parties.runner"

    def __init__(self):
        self.message = {"init": 1}


@pytest.fixture
def program():
    module = ModuleType("program")
    exec("class Counter:\n    def __init__(self):\n        self.count = 0\nMADE, CACHE, COUNTER = [], {}, Counter()", vars(module))
    sys.modules["program"] = module
    yield module
    del sys.modules["program"]


def test_variables_of_the_source_are_put_back(program):
    variables = Variables(program)
    program.MADE.append(1)
    program.CACHE["weight"] = torch.ones(2)
    program.COUNTER.count = 7
    variables.restore()
    assert program.MADE == [] and program.CACHE == {} and program.COUNTER.count == 0


def test_an_object_of_the_verifier_that_a_program_has_found_is_not(program):
    program.role = role = OfTheVerifier()
    variables = Variables(program)
    role.message = {"init": 2}
    variables.restore()
    assert program.role is role and role.message == {"init": 2}


def test_the_systems_entropy_has_no_state_and_a_generator_has(program):
    program.chance, program.draws = random.SystemRandom(), random.Random(3)
    variables = Variables(program)
    first = program.draws.random()
    variables.restore()
    assert program.draws.random() == first and program.chance.random() < 1
