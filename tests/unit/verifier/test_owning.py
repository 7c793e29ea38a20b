"""The owners of outputs' memory are found element by element, and outputs get the same layout as the task's."""

from __future__ import annotations

import numpy as np
import torch

from verifier.devices import cuda_party
from verifier.devices.cpu_party import CpuPartyDevice
from verifier.parties.owning import EARLIER, ITSELF, MOST_HELD, Footprint, HeldOutputs, laid_down, overlapping, owners, owners_of, share, strides


def test_elements_in_common_are_told_from_memory_in_common():
    whole = torch.zeros(8, 6)
    assert not share(whole[:, :3], whole[:, 3:]) and not share(whole[0], whole[1]) and not share(whole, torch.zeros(8, 6))
    assert share(whole[:, :4], whole[:, 3:]) and share(whole, whole.t()) and share(whole[2], whole)
    assert not share(whole[::2], whole[1::2]) and not share(whole[:0], whole)


def test_overlaps_within_a_tensor():
    row = torch.zeros(6)
    assert overlapping(row.expand(4, 6)) and overlapping(row.as_strided((3, 4), (1, 1))) and overlapping(row.as_strided((2, 3), (2, 1)))
    assert not overlapping(torch.zeros(4, 6).t()) and not overlapping(row[::2]) and not overlapping(row.expand(1, 6)) and not overlapping(row[:0])


def test_owners_are_named():
    given, state, held = torch.zeros(4, 4), torch.zeros(4), HeldOutputs()
    before, own = torch.zeros(3), torch.zeros(5)
    held.add([before], [before])
    found = owners([given[1], state.view(2, 2), own, own[:2], before[1:], own.new_zeros(1).expand(4)], [given], {"norm.weight": state}, held)
    assert found == ["input 0", "norm.weight", "output 3", "output 2", EARLIER, ITSELF]


def test_as_many_calls_are_held_as_fit():
    held = HeldOutputs()
    for number in range(MOST_HELD + 4):
        held.add([torch.tensor(number)], [])
    assert held.of(3) is None and int(held.of(4)[0]) == 4 and len(held.calls) == MOST_HELD
    held.clear()
    assert held.of(4) is None and held.count == 0


def test_outputs_that_a_program_keeps_outlive_those_who_held_them():
    class Cycle:
        def __init__(self, tensor):
            self.itself, self.tensor = self, tensor

    def held(tensors):
        outputs = HeldOutputs()
        for tensor in tensors:
            outputs.add([tensor], [])
        return outputs

    ring = [torch.zeros(4) for _ in range(5)]
    # An assertion keeps what it evaluates, so the numbers are taken beforehand.
    found = [
        held(iter(ring)).outlived([]),
        held(ring[at] if at < 5 else torch.zeros(4) for at in range(6)).outlived([]),
        held(tensor.clone() for tensor in ring).outlived([False]),
        held(iter(ring)).outlived([True]),
        held(tensor.view(2, 2)[1] for tensor in ring).outlived([]),
        held(Cycle(torch.zeros(4)).tensor for _ in ring).outlived([]),
    ]
    assert found == [5, 5, 0, 0, 5, 0]
    relaid = HeldOutputs()
    relaid.add([ring[0].clone()], [ring[0]])
    assert relaid.outlived([]) == 1 and not relaid.calls


def test_memory_that_a_program_wraps_as_a_new_tensor_in_each_call_is_still_in_use():
    def held(tensors):
        outputs = HeldOutputs()
        for tensor in tensors:
            outputs.add([tensor], [])
        return outputs

    block = np.ones((40, 1 << 14), dtype=np.float32)
    device = CpuPartyDevice({"threads": 1, "flush_bytes": 1})
    found = [
        held(torch.from_numpy(block[at]) for at in range(9)).outlived([False], device.in_use),
        held(torch.from_numpy(block[at]) for at in range(9)).outlived([True], device.in_use),
        held(torch.rand(1 << 14) for _ in range(9)).outlived([], device.in_use),
        held(torch.from_numpy(np.ones(1 << 14)) for _ in range(9)).outlived([], device.in_use),
        held(torch.rand(2, 1 << 14)[1] for _ in range(9)).outlived([], device.in_use),
    ]
    assert found == [9, 0, 0, 0, 0]
    assert device.in_use([(0, 1 << 20), (8, 16)]) == [False, False]


def test_blocks_of_torchs_allocator_are_told_from_other_memory(monkeypatch):
    blocks = [{"size": 512, "state": "active_allocated"}, {"size": 1024, "state": "inactive"}, {"size": 512, "state": "active_pending_free"}]
    segments = [{"address": 9000, "blocks": [{"size": 64, "state": "active_allocated"}]}, {"address": 4096, "blocks": blocks}]
    assert cuda_party.allocated(segments) == [(4096, 4608, True), (4608, 5632, False), (5632, 6144, False), (9000, 9064, True)]
    monkeypatch.setattr(cuda_party, "_memory_snapshot", lambda: segments)
    monkeypatch.setattr(cuda_party.torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(cuda_party.cuda_driver, "is_mapped", lambda address: address == 7000)
    device = object.__new__(cuda_party.CudaPartyDevice)
    wanted = {4096: True, 4700: False, 5700: False, 7000: True, 8000: False, 9000: True, 9064: False, 1: False}
    assert device.in_use([(begin, begin + 16) for begin in wanted]) == list(wanted.values())


def test_what_is_left_of_tensors_says_whose_memory_they_had():
    given, own = torch.zeros(4, 4), torch.zeros(6)
    left = [Footprint.of(tensor) for tensor in (given[:, 1], own[::2], own[1::2], own[:4], torch.zeros(1).expand(3), torch.zeros(0))]
    assert owners_of(left, [Footprint.of(given)], {}) == ["input 0", "output 3", "output 3", "output 1|output 2", ITSELF, ""]


def test_outputs_are_laid_down_and_others_stay_the_same_objects():
    turned, flat = torch.rand(3, 4).t(), torch.rand(5)
    output = {"a": turned, "b": [flat, 1.5]}
    assert laid_down(output, strides([turned, flat])) is output
    laid = laid_down(output, [(3, 1), (1,)])
    assert laid["a"].is_contiguous() and torch.equal(laid["a"], turned) and laid["b"] is output["b"]
    assert laid_down(turned, [None]) is turned and strides([flat.expand(2, 5), flat[::2], turned]) == [None, None, [1, 4]]
    assert laid_down(flat.view(1, 5), [[99, 1]]).stride() == (5, 1)
