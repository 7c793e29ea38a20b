"""The judge sets a call's processor before the party learns of the call, and a party returns its free memory before it warms up."""

from types import SimpleNamespace

import pytest
import torch

from verifier.channel import Frame
from verifier.judge.session import Values
from verifier.parties.role import Role
from verifier.timing import blocks as timing


class Told:
    """A party's device that records its requests in order."""

    torch_device = "cpu"

    def __init__(self):
        self.said = []

    def __getattr__(self, name):
        return lambda *args: self.said.append((name, *args))


def role_of(device):
    sock = SimpleNamespace(settimeout=lambda seconds: None)
    channel = SimpleNamespace(fileno=lambda: 0, sock=sock, send=lambda *args, **options: device.said.append(("send",)))
    role = Role(channel, "", device, Frame({"precision": "fp32-strict", "mode": "train"}, b"", []))
    role.arenas = {"in": torch.zeros(64, dtype=torch.uint8), "out": torch.zeros(64, dtype=torch.uint8)}
    role.model = torch.nn.Identity()
    return role


def request(**more):
    slot = {"arena": "out", "offsets": [0], "room": [64]}
    given = {"arena": "in", "specs": [{"dtype": "float32", "shape": [4]}], "offsets": [0], "tree": {"list": [{"tensor": 0}]}}
    return {**given, "rng": 1, "slot": slot, "again": None, "backward": None, **more}


def test_a_party_gives_back_only_before_it_warms_up():
    device = Told()
    role = role_of(device)
    role.do_rest(Frame({"anew": True}, b"", []))
    role.do_rest(Frame({}, b"", []))
    assert device.said == [("give_back",)]


def test_a_replayed_graph_holds_its_gradients(monkeypatch):
    role = role_of(Told())
    frame = Frame(request(backward={"sources": []}), b"", [])
    monkeypatch.setattr("verifier.parties.role.forward_backward", lambda model, inputs, wanted: "with a backward pass")
    assert role.invoke(role.model, ["input"], frame) == "with a backward pass"
    role.graphed = True
    assert role.invoke(role.model, ["input"], frame) == "input"


@pytest.mark.parametrize("processor", [None, 0, 3])
def test_a_party_is_on_its_processor_before_it_is_asked_and_is_not_told(processor, monkeypatch):
    asked, order = {}, []
    device = SimpleNamespace(trim=lambda need: None, sync=lambda: None, flush_caches=lambda: None, wait_ns=lambda: None)

    def timed(message, limit, hand_over):
        order.append("asked")
        asked.update(message)
        hand_over()
        return SimpleNamespace(frame=Frame({"specs": [], "copied": False}, b"", []), refreshed=0, inner=1, wall=1, copied=0, queued=0, around=0)

    arena = SimpleNamespace(bytes=torch.zeros(64, dtype=torch.uint8))
    binding = SimpleNamespace(stand_on=order.append)
    party = SimpleNamespace(device=device, timed=timed, arena=lambda name, nbytes: arena, arenas={"in": arena}, has_program=True, binding=binding)
    monkeypatch.setattr(timing, "reserve", lambda party, name, specs, slots, slot: {"offsets": []})
    monkeypatch.setattr(timing, "write", lambda *args: None)
    caller = timing.Caller(party, [], 1.0, processor=processor)
    caller.call(Values([], [], []), 1)
    assert order == ([] if processor is None else [processor]) + ["asked"]
    assert not {"processor", "processors"} & set(asked)
