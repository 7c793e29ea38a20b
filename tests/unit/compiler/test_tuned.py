"""A kernel is recognised regardless of the parameter values with which it was printed, and is given the values that were found for it."""

from pathlib import Path

from compiler import DeviceFigures, Options, print_program
from compiler.planning.knobs import numbers, with_numbers
from compiler.planning.tuned import fingerprints, tuned_by, with_tuned

EXAMPLES = Path(__file__).parents[3] / "examples"


def test_numbers_come_back_to_the_same_kernel(compiled):
    found = compiled((EXAMPLES / "layer_norm_gelu.py").read_text(), figures=DeviceFigures.h200())
    plain = Options()
    known = numbers(found.plan, found.source, plain)
    number = next(number for number in known if number.name.endswith(".block"))
    chosen = with_numbers(plain, known, {number.name: next(value for value in number.values if value != number.value)})
    kernels = fingerprints(found.plan, found.source, plain)
    assert kernels and kernels == fingerprints(found.plan, found.source, chosen)
    kept = tuned_by(chosen, kernels)
    assert kept == {kernels[number.groups[0]]: {"block": chosen.group_knobs[number.groups[0]]["block"]}}
    again = with_tuned(plain, kernels, kept)
    assert print_program(found.plan, found.source, again) == print_program(found.plan, found.source, chosen) != found.text
    assert with_tuned(plain, kernels, {"another kernel": {"block": 64}}) == plain
    other = compiled((EXAMPLES / "rms_norm.py").read_text(), figures=DeviceFigures.h200())
    assert not set(kernels.values()) & set(fingerprints(other.plan, other.source, plain).values())
