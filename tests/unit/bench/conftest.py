"""Fixtures shared by the sweep's tests."""

import pytest


@pytest.fixture
def checkout(tmp_path):
    for name in ("level3/2_ShallowWideMLP", "level3/18_Fire", "level3/1_MLP", "level1/10_Wide", "level1/9_Tall"):
        path = tmp_path / "checkout" / "KernelBench" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("# a task\n")
    return tmp_path / "checkout"
