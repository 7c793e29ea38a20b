"""Every example is captured, planned, printed, built by g++, and compared with PyTorch and its fp64 oracle."""

from pathlib import Path

import pytest
import torch

from tests.slowness import quick

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.py"))
HELPER = (Path(__file__).parents[3] / "verifier" / "build" / "inline_helper.py").read_text().strip()


@pytest.mark.parametrize("path", quick(EXAMPLES, 4), ids=lambda path: path.stem)
def test_program_is_right(compiled, path):
    found = compiled(path.read_text())
    assert found.own
    assert HELPER in found.text
    found.check()


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["softmax", *(pytest.param(n, marks=pytest.mark.slow) for n in ("group_norm_silu", "cross_entropy", "cumsum_scale"))]
)
def test_other_distributions(compiled, name):
    source = next(path for path in EXAMPLES if path.stem == name).read_text()
    found = compiled(source)
    torch.manual_seed(1)
    for scale in (1e-4, 30.0):
        inputs = [torch.randn_like(x) * scale if x.is_floating_point() else x for x in found.inputs]
        found.check(inputs)


@pytest.mark.parametrize("name", ["resnet_block", "depthwise_separable"])
def test_eval_mode(compiled, name):
    source = next(path for path in EXAMPLES if path.stem == name).read_text()
    found = compiled(source, mode="eval")
    assert not found.capture.graph.mutations
    found.check()


@pytest.mark.slow
def test_strategies_change_the_program_and_keep_it_right(compiled):
    from compiler import Options

    source = next(path for path in EXAMPLES if path.stem == "softmax").read_text()
    plain = compiled(source).text
    for strategy in ("non-temporal-stores", "parallel-split"):
        found = compiled(source, options=Options().with_strategy(strategy))
        assert found.text != plain
        found.check()


def test_group_given_back_to_pytorch(compiled):
    from compiler import Options

    source = next(path for path in EXAMPLES if path.stem == "transformer_block").read_text()
    group = compiled(source).plan.own[0].id
    found = compiled(source, options=Options().with_strategy("leave-to-library", group))
    assert "given back to PyTorch" in found.text
    found.check()
