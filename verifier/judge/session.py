"""The judge's interface to a confined reference. Inputs, eager results and fp64 results are available as tensors that the judge can read."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from verifier.correctness.inputs import Domain, vary
from verifier.devices.base import Arena
from verifier.judge.asking import Party
from verifier.judge.memory import EASE, large
from verifier.judge.party_failure import PartyFailure
from verifier.judge.pool import Pool
from verifier.layout import Spec, decode, place, read_specs, view
from verifier.limits import Limits
from verifier.task import Mode, Precision

Message = dict[str, Any]


@dataclass
class Values:
    """A tree of values whose tensors the judge holds."""

    tree: Any
    specs: list[Spec]
    tensors: list[torch.Tensor] = field(default_factory=list)
    arena: Arena | None = None  # for large values: the memory that holds them consecutively, to be mapped by the reference

    @property
    def nbytes(self) -> int:
        return sum(spec.nbytes for spec in self.specs)


@dataclass
class Run:
    """One call of the reference."""

    outputs: Values
    state: list[torch.Tensor]  # values of the state entries that the call changed, afterwards
    aliased: list[str] = field(default_factory=list)  # what each output shares memory with (`verifier.parties.owning.owners`); empty: nothing
    layout: list[list[int] | None] = field(default_factory=list)  # strides of each output; null means any strides
    changed_inputs: list[int] = field(default_factory=list)
    after: dict[int, torch.Tensor] = field(default_factory=dict)  # those inputs' values after the call, by number, unless they take up gigabytes
    orders: bool = False  # with `dropping`: whether the call sorts or ranks numbers
    drew: bool = False  # whether it drew random numbers from a seeded generator


@dataclass
class StateEntry:
    name: str
    spec: Spec
    parameter: bool
    alias: str | None


def dump(specs: list[Spec]) -> list[Message]:
    return [spec.model_dump(exclude_none=True) for spec in specs]


def fetch(party: Party, what: str, specs: list[Spec], arena: str, limit: float | None = None) -> list[torch.Tensor]:
    """Fetches tensors that a party holds into memory that only the judge uses. This is either a copy, or memory that a reference has written to and
    no longer maps."""
    if not specs:
        return []
    offsets, end = place(specs)
    if large(end) and party.role == "reference":
        return taken(party, what, specs, arena, limit)[0]
    memory = party.arena(arena, end)
    party.ask("put", {"what": what, "arena": arena, "offsets": offsets}, limit)
    copy = memory.bytes[:end].clone()
    party.device.sync()  # the party may write to this memory at its next request, and nothing would make it wait for one of the judge's streams
    return views(copy, specs, offsets)


def taken(party: Party, what: str, specs: list[Spec], arena: str, limit: float | None = None) -> tuple[list[torch.Tensor], Arena]:
    """Fetches tensors without copying them: the party gives up the arena."""
    offsets, end = place(specs)
    party.device.trim(EASE * end)
    party.drop(arena)
    memory = party.arena(arena, end)
    party.ask("put", {"what": what, "arena": arena, "offsets": offsets, "need": EASE * end}, limit)
    party.ask("detach", {"arena": arena}, limit)
    del party.arenas[arena]
    tensors = views(memory.bytes, specs, offsets)
    memory.leave()
    return tensors, memory


def views(flat: torch.Tensor, specs: list[Spec], offsets: list[int]) -> list[torch.Tensor]:
    return [view(flat, spec, offset) for spec, offset in zip(specs, offsets, strict=True)]


def give(party: Party, arena: str, tensors: list[torch.Tensor], specs: list[Spec]) -> Message:
    """Writes tensors into an arena and describes them in the form that a party's requests use."""
    message = reserve(party, arena, specs)
    write(party, message, tensors, specs)
    party.device.sync()
    return message


def reserve(party: Party, arena: str, specs: list[Spec], slots: int = 1, slot: int = 0) -> Message:
    """Reserves space for tensors in one of an arena's slots. Large values have a single slot."""
    _, size = place(specs)
    slots, slot = (1, 0) if large(size) else (slots, slot)
    party.arena(arena, slots * size)
    offsets, _ = place(specs, slot * size)
    return {"arena": arena, "specs": dump(specs), "offsets": offsets}


def write(party: Party, message: Message, tensors: list[torch.Tensor], specs: list[Spec]) -> None:
    """Writes tensors into the space that `reserve` has allocated; the caller waits for the device."""
    fill(party.arenas[message["arena"]].bytes, tensors, specs, message["offsets"])


def fill(memory: torch.Tensor, tensors: list[torch.Tensor], specs: list[Spec], offsets: list[int]) -> None:
    """Copies tensors into `memory` at these byte offsets; the caller waits for the device."""
    wanted = [(view(memory, spec, offset), tensor) for tensor, spec, offset in zip(tensors, specs, offsets, strict=True) if spec.numel]
    if wanted:
        torch._foreach_copy_([place for place, _ in wanted], [tensor for _, tensor in wanted])


def set_state(party: Party, state: list[StateEntry], tensors: list[torch.Tensor], limit: float) -> None:
    """Sets the weights of the task's model in a reference or a baseline."""
    specs = [entry.spec for entry in state]
    party.ask("take_state", {"names": [entry.name for entry in state], **give(party, "state", tensors, specs)}, limit)
    release(party, "state")


def load_baseline(party: Party, source: str, seed: int, limits: Limits) -> None:
    """Loads the task's model into a baseline's process before its first use. Raises `PartyFailure`."""
    party.binding.spread(True)
    party.ask("load", {"source": source, "seed": seed}, limits.load)
    party.loaded = (source, seed)


def release(party: Party, arena: str) -> None:
    """Frees a large arena that was used only for a transfer; the other side has already copied its tensors."""
    if arena in party.arenas and large(party.arenas[arena].nbytes):
        party.drop(arena)


def described(message: Message, tree_limit: int = 1 << 20) -> Values:
    """Reads the tree and specs from an answer."""
    return Values(message.get("tree"), read_specs(message.get("specs", [])))


class ReferenceSession:
    """A reference for one (task, precision, mode). It may serve many evaluations, because no program ever enters its process."""

    def __init__(self, pool: Pool, source: str, precision: Precision, mode: Mode, watch: bool = False):
        self.pool = pool
        self.source = source
        self.limits = pool.limits
        self.watch = watch
        self.seed = 0  # seed passed to `load`
        self.precision, self.mode = precision, mode
        self.oracle_place: str | None = None  # "cpu" after the device's memory has proved too small for fp64
        self.output_specs: dict[tuple[Spec, ...], list[Spec]] = {}
        self.backward: Message | None = None  # arguments of `gradients.forward_backward`; null means forward only
        self.party = pool.take("reference", precision, mode)
        self.init: Values = Values({"l": []}, [])
        self.state: list[StateEntry] = []
        self.state_tensors: list[torch.Tensor] = []
        self.mutated: list[str] = []
        self.remembers: list[str] = []  # attributes and variables outside the state dict that calls have changed
        self.exact: list[torch.Tensor] | None = None  # fp64's own value for each such entry; null if there has been no call since the state was set
        self.variants = 0
        self.returned: dict[tuple[Any, ...], int] = {}  # number of tensors, by wanted gradients and input shapes
        self.eager_party: Party | None = None  # the eager baseline of the quick tier, kept for the next program
        self.shown: tuple[Arena, list[torch.Tensor]] | None = None  # inputs of the judge that the reference maps as its arena "in"
        self.eager_bytes = self.oracle_bytes = 0  # peak memory of a PyTorch call and of an fp64 call, excluding inputs and state
        self.checkpoint: Callable[[], None] | None = None  # called before each long request; raises an exception if the client has withdrawn the job

    def load(self, seed: int) -> None:
        """Imports the task afresh and constructs its model from `seed`. Raises `PartyFailure`."""
        self._check()
        answer = self.party.ask("load", {"source": self.source, "seed": seed, "watch": self.watch}, self.limits.load).message
        self.watch = False  # once per process
        self.seed = seed
        self.init = described(answer["init"])
        self.init.tensors = fetch(self.party, "init", self.init.specs, "init")
        specs = read_specs(answer["specs"])
        self.state = [
            StateEntry(str(entry["name"]), spec, bool(entry["parameter"]), entry.get("alias"))
            for entry, spec in zip(answer["state"], specs, strict=True)
        ]
        self.state_tensors = fetch(self.party, "state", specs, "state")
        self.mutated, self.remembers, self.exact = [], [], None
        self.backward, self.output_specs, self.returned = None, {}, {}

    def clock(self) -> float:
        """Returns the number of seconds for which its process was free to run. The process is frozen while another verification measures on the
        device."""
        return time.monotonic() - self.pool.gate.frozen_seconds()

    @property
    def usable(self) -> bool:
        """Returns whether its process can serve another evaluation."""
        return self.party.alive and not self.party.lost

    def outlive(self) -> bool:
        """Recovers after the task has raised an exception on inputs that it need not accept. If its process is no longer usable, a fresh one takes
        over in the state that `load` left, and this method returns true. State changes made by calls are lost with the process."""
        if not self.party.lost:
            return False
        known = self.backward, self.output_specs, self.returned
        self.pool.give_back(self.party)
        self.shown = None
        self.party = self.pool.take("reference", self.precision, self.mode)
        self.load(self.seed)
        self.backward, self.output_specs, self.returned = known
        return True

    def take_state(self, tensors: list[torch.Tensor]) -> None:
        """Sets other weights in the model."""
        self.exact = None
        set_state(self.party, self.state, tensors, self.limits.load)

    def inputs(self, seed: int, variant: int | None = None, count: bool = False) -> Values:
        self._check()
        answer = self.party.ask("inputs", {"seed": seed, "variant": variant, "count": count}, self.limits.inputs).message
        if count:
            self.variants = int(answer.get("variants", 0))
        values = described(answer)
        if large(place(values.specs)[1]):
            self.hide()
            values.tensors, values.arena = taken(self.party, "inputs", values.specs, "drawn", self.limits.inputs)
        else:
            values.tensors = fetch(self.party, "inputs", values.specs, "out", self.limits.inputs)
        return values if self.backward is None else self._with_gradients(values, seed)

    def want_gradients(self, values: Values, seed: int) -> Values:
        """Makes every later call run both the forward and the backward pass. Determines from `values` which outputs, inputs and parameters have
        gradients, and returns `values` with gradients of the outputs appended. Raises `PartyFailure` if the task has none."""
        answer = self.party.ask("gradients", self._given(values, seed), self.limits.call).message
        self.backward = {"outputs": [int(i) for i in answer["outputs"]], "sources": [str(name) for name in answer["sources"]]}
        return self._with_gradients(values, seed)

    def _with_gradients(self, values: Values, seed: int) -> Values:
        """Appends random gradients of the outputs as the last argument. The output shapes are requested once per combination of input shapes."""
        assert self.backward is not None
        key = tuple(values.specs)
        if key not in self.output_specs:
            kept, self.backward = self.backward, None
            self.output_specs[key] = self.eager(values, seed).outputs.specs
            self.rollback()
            self.backward = kept
        specs = [self.output_specs[key][index] for index in self.backward["outputs"]]
        generator = torch.Generator(device=self.pool.device.torch_device).manual_seed(seed)
        drawn = [torch.randn(spec.shape, generator=generator, device=generator.device, dtype=spec.torch_dtype) for spec in specs]
        tree = {"l": [*values.tree["l"], {"l": [{"t": len(values.specs) + index} for index in range(len(specs))]}]}
        return Values(tree, [*values.specs, *(Spec.of(tensor) for tensor in drawn)], [*values.tensors, *drawn])

    def _given(self, values: Values, rng: int) -> Message:
        return {"tree": values.tree, "rng": rng, "backward": self.backward, **self.lend(values)}

    def lend(self, values: Values) -> Message:
        """Lends inputs for the reference's next requests: in its arena "in", or in place if they are large. Forward works on copies, so the task
        never writes to the inputs."""
        if values.arena is None:
            self.hide()
            return give(self.party, "in", values.tensors, values.specs)
        if self.shown is None or self.shown[0] is not values.arena:
            self.hide()
            self.party.drop("in")
            self.party.ask("attach", {"arena": "in", "handle": values.arena.handle}, self.limits.call, fds=values.arena.fds)
            self.shown = values.arena, values.tensors
        self.party.device.sync()
        return {"arena": "in", "specs": dump(values.specs), "offsets": place(values.specs)[0]}

    def hide(self) -> None:
        """Unmaps the judge's inputs from the reference."""
        if self.shown is not None:
            if self.party.alive:
                self.party.ask("detach", {"arena": "in"}, self.limits.call)
            self.shown = None  # the memory must not be freed earlier

    def rest(self, need: int) -> None:
        """Lets the reference free everything that it does not need if less than `need` bytes are free."""
        if self.party.alive and self.party.device.short(need):
            self.party.drop("in")
            self.party.ask("trim", {"need": need}, self.limits.call)

    def reshaped(self, values: Values, distribution: str, within: Domain | Sequence[Domain | None], seed: int) -> Values | None:
        """Changes the inputs in place to values from another distribution. `within` is as in `vary`. Returns null if that leaves them unchanged."""
        if not values.tensors:
            return None
        generator = torch.Generator(device=values.tensors[0].device).manual_seed(seed)
        return values if vary(distribution, values.tensors, within, generator) else None

    def redraw(self, seed: int, vary: int | None = None) -> list[torch.Tensor]:
        """Rebuilds the task's model with different weights and returns these weights. `vary` is as in `verifier.parties.initialising.constructed`."""
        self._check()
        self.exact = None
        answer = self.party.ask("redraw", {"seed": seed, "vary": vary}, self.limits.load).message
        return fetch(self.party, "state", read_specs(answer["specs"]), "state")

    def eager(self, values: Values, rng: int, dropping: str | None = None) -> Run:
        """Makes one call, which advances the model's state. `dropping` is as in `verifier.parties.dropping.Dropping`."""
        self._check()
        answer = self.party.ask("run", {**self._given(values, rng), "dropping": dropping}, self.limits.call).message
        self.eager_bytes = max([self.eager_bytes, *_counts(answer.get("taken"))])
        if not any(party.has_program for party in self.pool.busy):
            self.party.device.learn_wait()
        run = self._run(answer, "outputs", "state_after")
        self._counted(values, len(run.outputs.tensors))
        run.aliased = [str(words) for words in answer.get("aliased", [])]
        run.layout = [[int(step) for step in steps] if steps is not None else None for steps in answer.get("layout", [])]
        run.changed_inputs = [int(index) for index in answer.get("changed_inputs", [])]
        compared = [int(index) for index in answer.get("compared_inputs", [])]
        run.after = dict(zip(compared, fetch(self.party, "changed", read_specs(answer.get("changed_specs", [])), "out"), strict=True))
        run.drew, run.orders = bool(answer.get("drew")), bool(answer.get("orders"))
        self.mutated = [str(name) for name in answer.get("mutated", [])]
        self.remembers = sorted({*self.remembers, *(str(name) for name in answer.get("remembers", []))})
        return run

    def _counted(self, values: Values, count: int) -> None:
        """Raises `PartyFailure` for a task that cannot be compared with anything, not even with itself."""
        of = (str(self.backward), str(values.tree), *(spec.shape for spec in values.specs))
        before = self.returned.setdefault(of, count)
        if before != count:
            self.rollback()
            message = f"forward returns {before} tensors in one call and {count} in another with inputs of the same shapes"
            raise PartyFailure("raised", message, error_class="OutputCount", request="run")

    def oracle(self, values: Values, rng: int, rough: int | None = None, times: float = 1.0) -> Run:
        """Makes the same call in fp64. It starts from the current state, but uses fp64's own values for entries that have them (`exact`). Neither the
        state nor these values change. `rough` is the seed for the errors of plain arithmetic (`verifier.parties.oracle.Rough`), which are scaled by
        `times`."""
        self._check()
        message = {**self._given(values, rng), "rough": rough, "times": times, "where": self.oracle_place}
        if self.exact is not None:
            message["exact"] = give(self.party, "exact", self.exact, [Spec.of(tensor) for tensor in self.exact])
        answer = self.party.ask("oracle", message, self.limits.oracle).message
        self.oracle_place = "cpu" if answer.get("where") == "cpu" else None
        if rough is None:
            self.oracle_bytes = max([self.oracle_bytes, *_counts(answer.get("taken"))])
        return self._run(answer, "oracle", "oracle_state")

    def rollback(self) -> None:
        self.party.ask("rollback", {}, self.limits.call)

    def _check(self) -> None:
        if self.checkpoint is not None:
            self.checkpoint()

    def _run(self, answer: Message, what: str, state: str) -> Run:
        outputs = described(answer)
        outputs.tensors = fetch(self.party, what, outputs.specs, "out")
        decode(outputs.tree, outputs.tensors)  # raises LayoutError if the tree is malformed
        return Run(outputs, fetch(self.party, state, read_specs(answer["state_specs"]), "out"))

    def step(self) -> str:
        """Returns which of the task's functions ran last, for a failure message."""
        try:
            return self.party.ask("step", {}, 5).text("step")
        except PartyFailure:
            return ""

    def close(self) -> None:
        self.pool.give_back(self.party)
        self.shown = None
        self.end_eager()

    def end_eager(self) -> None:
        """Terminates the baseline, so that the next program gets a fresh one."""
        if self.eager_party is not None:
            self.pool.give_back(self.eager_party)
            self.eager_party = None


def _counts(value: Any) -> list[int]:
    return [count for count in value if isinstance(count, int)] if isinstance(value, list) else []
