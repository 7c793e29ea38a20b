"""A party's failure is attributed to its own side: a program is never blamed for another side's failure."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from verifier.channel import ChannelClosed, ChannelTimeout
from verifier.judge.asking import Party
from verifier.judge.endings import verdict_of
from verifier.judge.party_failure import PartyFailure, ends_context
from verifier.limits import Limits


@pytest.mark.parametrize("kind", ["raised", "crashed", "timed_out", "memory", "flood", "protocol"])
@pytest.mark.parametrize(
    ("whose", "status", "said"),
    [
        ("eager", "infrastructure_error", "the eager baseline failed, which says nothing about the program: it broke"),
        ("compile-max-autotune", "infrastructure_error", "the compile-max-autotune baseline failed"),
        ("reference", "infrastructure_error", "the reference failed"),
        ("rival", "inconclusive", "the program that it is timed against failed: it broke"),
    ],
)
def test_another_sides_failure_is_no_verdict_on_the_program(kind, whose, status, said):
    found, message = verdict_of(PartyFailure(kind, "it broke", line=7, error_class="RuntimeError", request="call", whose=whose))
    assert found == status and said in message


@pytest.mark.parametrize(
    ("message", "error_class", "ends"),
    [
        ("CUDA error 710: a kernel stopped at an assertion", "RuntimeError", True),
        ("CUDA error 700: a kernel read or wrote an illegal memory address", "RuntimeError", True),
        ("CUDA error 719: a kernel failed while it ran", "RuntimeError", True),
        ("CUDA error: device-side assert triggered", "RuntimeError", True),
        ("CUDA error: device-side assert triggered", "AcceleratorError", True),
        ("CUDA error 2: out of memory", "RuntimeError", False),
        ("CUDA error 701: a kernel was launched with more resources than the device has", "RuntimeError", False),
        ("all elements of input should be between 0 and 1", "RuntimeError", False),
    ],
)
def test_a_fault_in_a_kernel_ends_the_process_of_whoever_reports_it(message, error_class, ends):
    """Found on a GPU with probabilities below 0: the reference's process got another request after its context was gone."""
    assert ends_context(PartyFailure("raised", message, error_class=error_class, request="call", whose="reference")) == ends


@pytest.mark.parametrize("whose", ["program", ""])
def test_its_own_failure_is(whose):
    assert verdict_of(PartyFailure("crashed", "it broke", line=7, request="call", whose=whose)) == ("crashed", "line 7: it broke")
    assert verdict_of(PartyFailure("timed_out", "it took long", request="call", whose=whose))[0] == "timed_out"


def test_memory_that_other_verifications_hold_is_nobodys_fault():
    short = PartyFailure("raised", "CUDA out of memory", error_class="OutOfMemoryError", request="construct", whose="program")
    status, message = verdict_of(short, shared=True)
    assert status == "inconclusive" and message.startswith("this host is busy")
    assert verdict_of(short)[0] == "crashed", "alone on the device it is the program that wants too much"
    broke = PartyFailure("raised", "it broke", error_class="RuntimeError", request="call", whose="program")
    assert verdict_of(broke, shared=True)[0] == "crashed"


def party(role: str, side: str = "") -> Party:
    spawned = SimpleNamespace(channel=None, group=None, flooded=False, over="", limits=Limits(), wrapped=True)
    spawned.exit_status, spawned.end, spawned.text = (lambda seconds: -11), (lambda: None), (lambda: "")
    made = Party(spawned, None, Limits(), SimpleNamespace(frozen_seconds=lambda: 0.0))
    made.role, made.side = role, side
    made.source_name = "task" if role in ("reference", "baseline") else "program"
    return made


@pytest.mark.parametrize(
    ("role", "side", "whose"),
    [
        ("reference", "", "reference"),
        ("baseline", "eager", "eager"),
        ("baseline", "", "baseline"),
        ("runner", "", "program"),
        ("runner", "rival", "rival"),
        ("builder", "", "program"),
    ],
)
def test_a_party_says_whose_its_failure_is(role, side, whose):
    assert party(role, side).failure("call", ChannelClosed("gone"), 5.0).whose == whose
    late = party(role, side).failure("call", ChannelTimeout("no answer"), 5.0)
    assert (late.kind, late.request, late.whose) == ("timed_out", "call", whose)
    dead = party(role, side)
    dead.alive = False
    with pytest.raises(PartyFailure) as raised:
        dead.send("call", {}, 5.0)
    assert raised.value.whose == whose


@pytest.mark.parametrize(("own", "status"), [("14.79 GiB", "inconclusive"), ("934.20 MiB", "inconclusive"), ("61.20 GiB", "crashed")])
def test_memory_that_other_processes_hold_is_no_fault_of_the_program(own, status):
    message = (
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.18 GiB of which 1.10 GiB is free. Including non-PyTorch "
        f"memory, this process has {own} memory in use."
    )
    found, told = verdict_of(PartyFailure("raised", message, error_class="OutOfMemoryError", request="construct", whose="program"))
    assert found == status and told.startswith("this host is busy") == (status == "inconclusive")
