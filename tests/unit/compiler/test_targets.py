"""Targets: each is found by its language, and families print nothing for a language that has no target."""

import pytest

from compiler import DeviceFigures, families
from compiler.targets.lookup import TARGETS, own_language, target_of


def test_a_target_is_found_by_its_language():
    assert all(target_of(language).language == language for language in TARGETS)
    assert [own_language(figures) for figures in (DeviceFigures.cpu(2), DeviceFigures.h200())] == ["cpp", "cuda"]


@pytest.mark.parametrize("family", families.FAMILIES, ids=lambda family: family.name)
def test_a_family_prints_for_targets_alone(family):
    assert family.printers and set(family.printers) <= {target.dialect for target in TARGETS.values()}
    assert {language for language in TARGETS if target_of(language).supports(family)} >= set(family.printers)
