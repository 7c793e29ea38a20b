"""The judge's use of a confined reference: its inputs, eager results and fp64 results as tensors that the judge can read."""

from __future__ import annotations

from collections.abc import Callable
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
    arena: Arena | None = None  # for large values: the memory in which they lie one after another, to be shown to the reference

    @property
    def nbytes(self) -> int:
        return sum(spec.nbytes for spec in self.specs)


@dataclass
class Run:
    """One call of the reference."""

    outputs: Values
    state: list[torch.Tensor]  # values of the entries that it changed, afterwards
    aliased: list[str] = field(default_factory=list)  # what each output shares memory with (`verifier.parties.owning.owners`); empty: nothing
    layout: list[list[int] | None] = field(default_factory=list)  # strides of each output; null: any
    changed_inputs: list[int] = field(default_factory=list)
    orders: bool = False  # with `dropping`: the call sorts or ranks numbers
    drew: bool = False  # it drew random numbers from a seeded generator


@dataclass
class StateEntry:
    name: str
    spec: Spec
    parameter: bool
    alias: str | None


def dump(specs: list[Spec]) -> list[Message]:
    return [spec.model_dump(exclude_none=True) for spec in specs]


def fetch(party: Party, what: str, specs: list[Spec], arena: str, limit: float | None = None) -> list[torch.Tensor]:
    """Fetches tensors that a party holds into memory that is the judge's alone: a copy, or memory that a reference has written to and no longer
    maps."""
    if not specs:
        return []
    offsets, end = place(specs)
    if large(end) and party.role == "reference":
        return taken(party, what, specs, arena, limit)[0]
    memory = party.arena(arena, end)
    party.ask("put", {"what": what, "arena": arena, "offsets": offsets}, limit)
    copy = memory.bytes[:end].clone()
    party.device.sync()  # at the next request the party may write there, and no stream of the judge would hold it back
    return views(copy, specs, offsets)


def taken(party: Party, what: str, specs: list[Spec], arena: str, limit: float | None = None) -> tuple[list[torch.Tensor], Arena]:
    """Fetches without a copy: the arena leaves the party."""
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
    """Writes tensors into an arena and describes them in the form that a party's requests take."""
    message = reserve(party, arena, specs)
    write(party, message, tensors, specs)
    party.device.sync()
    return message


def reserve(party: Party, arena: str, specs: list[Spec], slots: int = 1, slot: int = 0) -> Message:
    """Reserves room for tensors in one of an arena's slots. Large values have a single slot."""
    _, size = place(specs)
    slots, slot = (1, 0) if large(size) else (slots, slot)
    party.arena(arena, slots * size)
    offsets, _ = place(specs, slot * size)
    return {"arena": arena, "specs": dump(specs), "offsets": offsets}


def write(party: Party, message: Message, tensors: list[torch.Tensor], specs: list[Spec]) -> None:
    """Writes tensors where `reserve` made room for them; the caller waits for the device."""
    fill(party.arenas[message["arena"]].bytes, tensors, specs, message["offsets"])


def fill(memory: torch.Tensor, tensors: list[torch.Tensor], specs: list[Spec], offsets: list[int]) -> None:
    """Copies tensors into the bytes `memory` at these offsets; the caller waits for the device."""
    wanted = [(view(memory, spec, offset), tensor) for tensor, spec, offset in zip(tensors, specs, offsets, strict=True) if spec.numel]
    if wanted:
        torch._foreach_copy_([place for place, _ in wanted], [tensor for _, tensor in wanted])


def set_state(party: Party, state: list[StateEntry], tensors: list[torch.Tensor], limit: float) -> None:
    """Gives the task's model in a reference or a baseline these weights."""
    specs = [entry.spec for entry in state]
    party.ask("take_state", {"names": [entry.name for entry in state], **give(party, "state", tensors, specs)}, limit)
    release(party, "state")


def load_baseline(party: Party, source: str, seed: int, limits: Limits) -> None:
    """Loads the task's model into a baseline's process ahead of its first use. Raises `PartyFailure`."""
    party.binding.spread(True)
    party.ask("load", {"source": source, "seed": seed}, limits.load)
    party.loaded = (source, seed)


def release(party: Party, arena: str) -> None:
    """Frees a large arena that served only for transfer: its tensors have been copied on the other side."""
    if arena in party.arenas and large(party.arenas[arena].nbytes):
        party.drop(arena)


def described(message: Message, tree_limit: int = 1 << 20) -> Values:
    """Reads tree and specs from an answer."""
    return Values(message.get("tree"), read_specs(message.get("specs", [])))


class ReferenceSession:
    """A reference for one (task, precision, mode). It may serve many evaluations: no program ever enters its process."""

    def __init__(self, pool: Pool, source: str, precision: Precision, mode: Mode, watch: bool = False):
        self.pool = pool
        self.source = source
        self.limits = pool.limits
        self.watch = watch
        self.precision = precision
        self.oracle_place: str | None = None  # "cpu" once the device's memory was too small for fp64
        self.output_specs: dict[tuple[Spec, ...], list[Spec]] = {}
        self.backward: Message | None = None  # arguments of `gradients.forward_backward`; null: forward only
        self.party = pool.take("reference", precision, mode)
        self.init: Values = Values({"l": []}, [])
        self.state: list[StateEntry] = []
        self.state_tensors: list[torch.Tensor] = []
        self.mutated: list[str] = []
        self.remembers: list[str] = []  # attributes and variables outside of the state dict that calls have changed
        self.exact: list[torch.Tensor] | None = None  # fp64's own value of each such entry; null: the state was set, and no call was made since
        self.variants = 0
        self.returned: dict[tuple[Any, ...], int] = {}  # number of tensors, by wanted gradients and shapes of inputs
        self.eager_party: Party | None = None  # the baseline of tier quick, kept for the next program
        self.shown: tuple[Arena, list[torch.Tensor]] | None = None  # inputs of the judge that the reference maps as its arena "in"
        self.eager_bytes = self.oracle_bytes = 0  # peak of a call in PyTorch, and of one in fp64, beside inputs and state
        self.checkpoint: Callable[[], None] | None = None  # called before each long request; raises where the job is no longer wanted

    def load(self, seed: int) -> None:
        """Imports the task afresh and constructs its model under `seed`. Raises `PartyFailure`."""
        self._check()
        answer = self.party.ask("load", {"source": self.source, "seed": seed, "watch": self.watch}, self.limits.load).message
        self.watch = False  # once a process
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

    def take_state(self, tensors: list[torch.Tensor]) -> None:
        """Gives the model other weights."""
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
        """Makes every further call forward and backward. Learns from `values` which outputs, inputs and parameters have gradients, and returns
        `values` with gradients of the outputs appended. Raises `PartyFailure` where the task has none."""
        answer = self.party.ask("gradients", self._given(values, seed), self.limits.call).message
        self.backward = {"outputs": [int(i) for i in answer["outputs"]], "sources": [str(name) for name in answer["sources"]]}
        return self._with_gradients(values, seed)

    def _with_gradients(self, values: Values, seed: int) -> Values:
        """Appends random gradients of the outputs as the last argument. The shapes of outputs are requested once for each shape of the inputs."""
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
        """Lends inputs for the reference's next requests: in its arena "in", or where they lie if they are large. Forward works on copies, so that
        the task never writes to them."""
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
        """Ends the reference's view of inputs that the judge has."""
        if self.shown is not None:
            if self.party.alive:
                self.party.ask("detach", {"arena": "in"}, self.limits.call)
            self.shown = None  # only now may the memory go

    def rest(self, need: int) -> None:
        """Lets the reference free everything that it does not need, where less than `need` bytes are free."""
        if self.party.alive and self.party.device.short(need):
            self.party.drop("in")
            self.party.ask("trim", {"need": need}, self.limits.call)

    def reshaped(self, values: Values, distribution: str, domain: Domain, seed: int) -> Values | None:
        """Changes the inputs in place into ones from another distribution; null where that leaves them unchanged."""
        if not values.tensors:
            return None
        generator = torch.Generator(device=values.tensors[0].device).manual_seed(seed)
        return values if vary(distribution, values.tensors, domain, generator) else None

    def redraw(self, seed: int, vary: int | None = None) -> list[torch.Tensor]:
        """Constructs the task's model anew with other weights and returns them. `vary`: as for
        `verifier.parties.initialising.constructed`."""
        self._check()
        self.exact = None
        answer = self.party.ask("redraw", {"seed": seed, "vary": vary}, self.limits.load).message
        return fetch(self.party, "state", read_specs(answer["specs"]), "state")

    def eager(self, values: Values, rng: int, dropping: str | None = None) -> Run:
        """Makes one call, which advances the model's state. `dropping`: "low" or "high", for `verifier.parties.dropping`."""
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
        run.drew, run.orders = bool(answer.get("drew")), bool(answer.get("orders"))
        self.mutated = [str(name) for name in answer.get("mutated", [])]
        self.remembers = sorted({*self.remembers, *(str(name) for name in answer.get("remembers", []))})
        return run

    def _counted(self, values: Values, count: int) -> None:
        """Raises `PartyFailure` for a task that cannot be compared with anything, not even itself."""
        of = (str(self.backward), str(values.tree), *(spec.shape for spec in values.specs))
        before = self.returned.setdefault(of, count)
        if before != count:
            self.rollback()
            message = f"forward returns {before} tensors in one call and {count} in another with inputs of the same shapes"
            raise PartyFailure("raised", message, error_class="OutputCount", request="run")

    def oracle(self, values: Values, rng: int, rough: int | None = None, times: float = 1.0) -> Run:
        """Makes the same call in fp64, from the present state except for entries with fp64's own values (`exact`); neither changes. `rough` is the
        seed of plain arithmetic's errors (`verifier.parties.oracle.Rough`), which are `times` as large."""
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
        decode(outputs.tree, outputs.tensors)  # raises LayoutError where the tree is malformed
        return Run(outputs, fetch(self.party, state, read_specs(answer["state_specs"]), "out"))

    def step(self) -> str:
        """Returns which of the task's functions ran last, for the message about a failure."""
        try:
            return self.party.ask("step", {}, 5).text("step")
        except PartyFailure:
            return ""

    def close(self) -> None:
        self.pool.give_back(self.party)
        self.shown = None
        self.end_eager()

    def end_eager(self) -> None:
        """Ends the baseline, so that the next program gets a fresh one."""
        if self.eager_party is not None:
            self.pool.give_back(self.eager_party)
            self.eager_party = None


def _counts(value: Any) -> list[int]:
    return [count for count in value if isinstance(count, int)] if isinstance(value, list) else []
