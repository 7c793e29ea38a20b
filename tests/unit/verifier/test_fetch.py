"""The judge reads memory that it shares with a party: on a GPU, its copy is only queued when `clone` returns."""

from types import SimpleNamespace

import torch

from verifier.judge.session import fetch
from verifier.layout import Spec


class Shared:
    """An arena whose copies are made only when the device is synchronised, as when other processes are using the GPU."""

    def __init__(self, size: int):
        self.lies, self.queued = torch.zeros(size, dtype=torch.uint8), []
        self.bytes = self

    def __getitem__(self, part: slice) -> "Shared":
        self.part = part
        return self

    def clone(self) -> torch.Tensor:
        copy = torch.empty_like(self.lies[self.part])
        self.queued.append((copy, self.part))
        return copy

    def sync(self) -> None:
        for copy, part in self.queued:
            copy.copy_(self.lies[part])
        self.queued.clear()


def test_what_was_fetched_is_not_what_the_party_writes_there_next():
    """On H200s shared by several verifiers, the running averages of a batch norm, which were fetched next, appeared at the beginning of its
    output."""
    memory = Shared(64)
    held = {"outputs": torch.arange(16, dtype=torch.float32), "state": torch.full((4,), -1.0)}

    def ask(kind: str, message: dict, limit: float | None = None) -> None:
        raw = held[message["what"]].view(torch.uint8)
        memory.lies[message["offsets"][0] : message["offsets"][0] + raw.numel()] = raw

    party = SimpleNamespace(role="reference", arena=lambda name, size: memory, ask=ask, device=SimpleNamespace(sync=memory.sync))
    outputs = fetch(party, "outputs", [Spec.of(held["outputs"])], "out")
    state = fetch(party, "state", [Spec.of(held["state"])], "out")
    memory.sync()
    assert torch.equal(outputs[0], held["outputs"]) and torch.equal(state[0], held["state"])
