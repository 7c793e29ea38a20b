"""The memory of the reference and the runner, counted from torch's own allocator events: the parties' columns of the ledger
(`verifier.judge.memory`)."""

from types import SimpleNamespace

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from tests.unit.verifier.l1_norm import l1_norm
from verifier.channel import Frame
from verifier.layout import Spec
from verifier.parties.reference import Reference
from verifier.parties.role import Role

UNIT = 1 << 20  # bytes of the input, and also of the output
TASK = l1_norm(UNIT // 4096, 1024)


class Counted:
    """Counts the units of memory that were allocated and not freed: the maximum, and the final value."""

    def __enter__(self):
        self._profile = profile(activities=[ProfilerActivity.CPU], profile_memory=True)
        self._profile.__enter__()
        return self

    def __exit__(self, *raised):
        self._profile.__exit__(*raised)
        now = self.most = 0
        events = [event for event in self._profile.profiler.kineto_results.events() if event.name() == "[memory]"]
        for event in sorted(events, key=lambda event: event.start_ns()):
            now += event.nbytes()
            self.most = max(self.most, now)
        self.most, self.left = round(self.most / UNIT, 1), round(now / UNIT, 1)


def party(kind, tmp_path):
    class Device:
        torch_device = "cpu"

        def __getattr__(self, name):
            return lambda *args, **options: None

    sock = SimpleNamespace(settimeout=lambda seconds: None)
    channel = SimpleNamespace(fileno=lambda: 0, sock=sock, send=lambda *args, **options: None)
    return kind(channel, str(tmp_path), Device(), frame(precision="fp32-strict", mode="train"))


def frame(**message):
    return Frame(message, b"", [])


def test_the_reference(tmp_path):
    reference = party(Reference, tmp_path)
    reference.do_load(frame(source=TASK, seed=1))
    reference.arenas = {name: torch.zeros(2 * UNIT, dtype=torch.uint8) for name in ("in", "out")}
    with Counted() as counted:
        answer = reference.do_inputs(frame(seed=1))
        reference.do_put(frame(what="inputs", arena="in", offsets=[0]))
    assert (counted.most, counted.left) == (1, 0), "drawn inputs stay with the judge alone"
    given = {"tree": answer["tree"], "rng": 1, "arena": "in", "specs": answer["specs"], "offsets": [0]}
    with Counted() as counted:
        reference.do_run(frame(**given))
        reference.do_put(frame(what="outputs", arena="out", offsets=[0]))
    assert (counted.most, counted.left) == (2, 0), "a copy of the inputs, and a temporary or the outputs"
    with Counted() as counted:
        reference.do_oracle(frame(**given))
        reference.do_put(frame(what="oracle", arena="out", offsets=[0]))
    assert (counted.most, counted.left) == (4, 0), "inputs, and a temporary or the outputs, twice as large"


@pytest.mark.parametrize(("kept", "left"), [(False, 0), (True, 1), ("both", 1)])
def test_a_call(tmp_path, kept, left):
    """Outputs of several gigabytes are kept only if they are read again; when a second call is requested, those of the first are released."""
    runner = party(Role, tmp_path)
    runner.model = lambda x: x + 1
    runner.arenas = {name: torch.zeros(UNIT, dtype=torch.uint8) for name in ("in", "out")}
    x = torch.rand(UNIT // 4)
    spec = Spec.of(x).model_dump(exclude_none=True)
    slot = {"arena": "out", "offsets": [0], "room": [UNIT]}
    message = {"tree": {"l": [{"t": 0}]}, "rng": 1, "arena": "in", "specs": [spec], "offsets": [0], "slot": slot, "kept": kept}
    found = []
    with Counted() as counted:
        for number in range(2):
            runner.arenas["in"].copy_((x + number).view(torch.uint8))
            runner.do_call(frame(**message))
            found.append(runner.arenas["out"].view(torch.float32).clone())
            if kept == "both" and number:
                runner.do_again(frame(slot=slot))
                assert torch.equal(runner.arenas["out"].view(torch.float32), found[0]) and not runner.earlier
        assert torch.equal(found[1], x + 2)
        del found
    assert counted.left == left
    runner.do_trim(frame(need=1))
    assert not runner.previous
