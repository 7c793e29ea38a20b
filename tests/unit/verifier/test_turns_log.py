"""The log of a device's turns, which is written on request."""

import json
import time

from verifier.judge.gate import Gate


def test_a_log_says_who_had_the_device_when(tmp_path, monkeypatch):
    monkeypatch.setenv("STITCH_TURNS", str(tmp_path / "turns"))
    first, second = Gate("cuda:0", tmp_path), Gate("cuda:0", tmp_path)
    try:
        for gate in (first, second):
            gate.begin(list)
        while not (first._floor.held and second._floor.held):
            time.sleep(0.01)
        second.turns.at("baseline call")
        second.turns.answered("baseline load", time.monotonic() - 60)
        second.turns.answered("baseline call", time.monotonic())
        with first.alone():
            first.turns.mark("rested")
    finally:
        first.end()
        second.end()
    lines = [json.loads(line) for path in (tmp_path / "turns").glob("cuda-0-*.jsonl") for line in path.read_text().splitlines()]
    measured, closed = (next(line for line in lines if line["event"] == event) for event in ("measured", "closed"))
    assert measured["asked"] <= measured["turn"] <= measured["floor"] <= measured["begun"] <= measured["rested"] <= measured["at"]
    assert [line["request"] for line in lines if line["event"] == "answered"] == ["baseline load"], "but for what takes no time"
    assert closed["requests"] == ["baseline call"] and measured["asked"] <= closed["seen"] <= closed["still"] <= measured["floor"]


def test_without_being_asked_for_there_is_no_log(tmp_path, monkeypatch):
    monkeypatch.delenv("STITCH_TURNS", raising=False)
    gate = Gate("cuda:0", tmp_path)
    gate.turns.at("anything")
    with gate.alone():
        gate.turns.mark("rested")
    assert not [path for path in tmp_path.iterdir() if path.suffix == ".jsonl"]
