"""A judge caches graphs by task, mode and precision, but only if there is a graph."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from verifier.graph import Capture, Graph
from verifier.judge import capturing
from verifier.judge.capturing import REMEMBERED, Captures

GRAPH = Graph(inputs=[], nodes=[], outputs=[])


@pytest.fixture
def exports(monkeypatch):
    """Returns (task, mode, precision) for every export; tasks whose names begin with "no" have no graph."""
    done = []

    def take(session, data_dir, task, mode, seed):
        done.append((task, mode, session.precision))
        return Capture(task=task, mode=mode, graph=None if task.startswith("no") else GRAPH), 100 << 20 if task.startswith("large") else 1000

    monkeypatch.setattr(capturing, "take_capture", take)
    return done


def test_the_same_task_is_exported_once_for_a_mode_and_a_precision(tmp_path, exports):
    captures, fp32 = Captures(tmp_path), SimpleNamespace(precision="fp32-strict")
    first = captures.take(fp32, "a", "train", 1)
    assert captures.known("a", "train", "fp32-strict") is first and exports == [("a", "train", "fp32-strict")]
    assert captures.known("a", "train", "bf16") is captures.known("a", "eval", "fp32-strict") is None


def test_an_export_that_failed_is_tried_again_and_the_oldest_are_forgotten(tmp_path, exports):
    captures, session = Captures(tmp_path), SimpleNamespace(precision="fp32-strict")
    for _ in range(2):
        assert captures.take(session, "none", "train", 1).graph is None
    assert len(exports) == 2
    for number in range(REMEMBERED + 1):
        captures.take(session, f"task {number}", "train", 1)
    assert captures.known(f"task {REMEMBERED}", "train", "fp32-strict") and captures.known("task 1", "train", "fp32-strict")
    assert captures.known("task 0", "train", "fp32-strict") is None
    captures.take(session, "one more", "train", 1)  # the request kept "task 1" in use
    assert captures.known("task 1", "train", "fp32-strict") and captures.known("task 2", "train", "fp32-strict") is None


def test_large_graphs_leave_room_for_few(tmp_path, exports):
    captures, session = Captures(tmp_path), SimpleNamespace(precision="fp32-strict")
    for name in ("small", "large 1", "large 2"):
        captures.take(session, name, "train", 1)
    assert [bool(captures.known(name, "train", "fp32-strict")) for name in ("small", "large 1", "large 2")] == [False, False, True]
