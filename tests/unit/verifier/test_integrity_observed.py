"""The runner's half of the `integrity` stage on the CPU: what a few calls reveal."""

from __future__ import annotations

import sys
import threading
import time

import pytest
import torch

from verifier.integrity import observed as module
from verifier.integrity.blocked import settings
from verifier.integrity.evidence import Evidence
from verifier.integrity.observed import foreign_libraries, mapped_libraries, observe


@pytest.fixture(autouse=True)
def nothing_compiled():
    """Clears compiled graphs: a runner's process is fresh, whereas this one may have compiled some in earlier tests."""
    if dynamo := sys.modules.get("torch._dynamo.utils"):
        dynamo.counters.clear()


class Device:
    torch_device = "cpu"

    def sync(self) -> None:
        pass


def observed(forward) -> Evidence:
    return Evidence.model_validate(observe(Device(), forward, lambda: None, settings()))


def test_operators_and_needs():
    x = torch.rand(64, 64)
    seen = observed(lambda: torch.softmax(x @ x, -1))
    assert {"aten::mm", "aten::_softmax"} <= {kernel.name for kernel in seen.kernels}
    assert {need.name for need in seen.needs} == {"aten.mm", "aten._softmax"}
    assert seen.wall_ms > 0 and seen.blocked == "raised" and not seen.changed_late and seen.settings == {}


def test_an_output_that_changes_late(monkeypatch):
    monkeypatch.setattr(module, "LATE_SECONDS", 0.5)  # a busy host starts the timer late

    def forward():
        y = torch.zeros(8)
        threading.Timer(0.01, lambda: y.fill_(1.0)).start()
        return y

    assert observed(forward).changed_late


def test_work_between_the_calls(monkeypatch):
    monkeypatch.setattr(module, "process_time", lambda: 1.5 * time.perf_counter())
    assert 1.3 < observed(lambda: torch.zeros(4)).idle_cpu < 1.7
    monkeypatch.setattr(module, "process_time", lambda: 0.0)
    assert observed(lambda: torch.zeros(4)).idle_cpu == 0.0


def test_switches_that_were_flipped():
    before = settings()
    torch.backends.cudnn.benchmark = not torch.backends.cudnn.benchmark
    try:
        seen = observe(Device(), lambda: torch.zeros(1), lambda: None, before)
    finally:
        torch.backends.cudnn.benchmark = not torch.backends.cudnn.benchmark
    assert list(seen["settings"]) == ["cudnn.benchmark"]


def test_libraries_that_are_mapped():
    assert any("libtorch" in path for path in mapped_libraries())
    assert foreign_libraries(mapped_libraries(), "/tmp", "/tmp/build") == []
