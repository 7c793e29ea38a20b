"""Targets: each is found by its language, and families print for no language that there is none for."""

import pytest

from compiler import DeviceFigures, Options, families, make_plan, print_program
from compiler.targets.lookup import TARGETS, own_language, target_of


def test_a_target_is_found_by_its_language():
    assert all(target_of(language).language == language for language in TARGETS)
    assert [own_language(figures) for figures in (DeviceFigures.cpu(2), DeviceFigures.h200())] == ["cpp", "cuda"]


@pytest.mark.parametrize("family", families.FAMILIES, ids=lambda family: family.name)
def test_a_family_prints_for_targets_alone(family):
    assert family.printers and set(family.printers) <= {target.dialect for target in TARGETS.values()}
    assert {language for language in TARGETS if target_of(language).supports(family)} >= set(family.printers)


def test_softmax_in_hip(compiled, task):
    found = compiled(task("return F.softmax(x, 1) * 2", "torch.randn(64, 300)"))
    plan = make_plan(found.capture, found.source, DeviceFigures.h200(), language="hip")
    text = print_program(plan, found.source, Options())
    kernels = text.partition('SOURCE = r"""')[2].partition('"""')[0]
    assert text.startswith('"""Kernels in HIP') and 'stitch_build("hip", SOURCE)' in text and "HIP error {status}" in text
    assert kernels.startswith("\n#include <hip/hip_runtime.h>\n") and "warps of 32" in kernels and "cuda" not in kernels
    assert "softmax_mul_kernel<<<64, 128, 0, (hipStream_t)stream>>>(x, out);\n    return (int)hipGetLastError();" in kernels


def test_kernels_with_ptx_are_left_to_the_library_in_hip(compiled, task):
    found = compiled(task("return F.relu(self.a(x))", "torch.randn(512, 512)", "self.a = nn.Linear(512, 512)"))
    plan = make_plan(found.capture, found.source, DeviceFigures.h200(), language="hip")
    assert [group.family for group in plan.groups] == ["matmul"]
    text = print_program(plan, found.source, Options().with_strategy("cuda-graph"))
    assert "is written for NVIDIA's processors alone" in text and "SOURCE" not in text
