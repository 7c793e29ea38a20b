"""Outputs of several gigabytes have a single location in a party's memory: the previous call's outputs are copied before new ones are written
there."""

from types import SimpleNamespace

import torch

from verifier.judge.session import Values
from verifier.layout import Spec
from verifier.timing import blocks as timing
from verifier.timing.blocks import Caller


def test_the_copy_is_made_before_the_party_writes_there_again(monkeypatch):
    monkeypatch.setattr(timing, "large", lambda nbytes: True)
    said: list[str] = []
    value = torch.arange(6.0)
    specs = [Spec.of(value)]
    device = SimpleNamespace(sync=lambda: said.append("sync"), trim=lambda need=0: None, wait_ns=lambda: 0, flush_caches=lambda: None)
    arenas = {name: SimpleNamespace(bytes=torch.zeros(4096, dtype=torch.uint8), nbytes=4096) for name in ("in", "out")}
    message = {"tree": {"t": 0}, "specs": [spec.model_dump(exclude_none=True) for spec in specs], "copied": True}

    def timed(request, limit, hand_over):
        hand_over()
        said.append("called")
        return SimpleNamespace(inner=1, wall=1, copied=1, refreshed=1, queued=0, around=0, frame=SimpleNamespace(message=message))

    party = SimpleNamespace(
        device=device, arenas=arenas, arena=lambda name, nbytes: arenas[name], timed=timed, has_program=True, ask=lambda kind, *_: said.append(kind)
    )
    caller = Caller(party, specs, 1.0)
    values = Values({"l": [{"t": 0}]}, specs, [value])
    for _ in range(2):
        call = caller.call(values, 1, flush=False, reread=True)
    last = said[len(said) - said[::-1].index("called") :]
    assert last.index("sync") < last.index("again")
    assert len(call.again) == 1
