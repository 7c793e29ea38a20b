"""Supervised training and GRPO in plain PyTorch, short enough to read in one sitting.

GRPO here works as follows. Replies to the same prompt form a group. A sample's advantage is its return relative to the mean of the others at the same
turn (leave one out). The objective is the clipped one with the wider upper bound (0.2/0.28, arXiv 2503.14476), averaged over the tokens of the whole
batch, with an optional KL term. Rollouts that are not samples are left out, as are groups in which all rewards are equal
(`agents.rl.reward.advantages`).

All randomness in a step comes from the seed and the step number. A run that was interrupted and resumed therefore produces the same curve as an
uninterrupted one, provided that the rewards are the same. Rewards based on measured speeds are only nearly the same.
"""

from __future__ import annotations

import copy
import math
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from agents.rl import records, tensors
from agents.rl.defaults import CONFIG
from agents.rl.policy import Policy, adapt, unadapted
from agents.rl.prompts import program_at, shown_in
from agents.rl.records import METRICS, ROLLOUTS
from agents.rl.reward import Scored, advantages

CHECKPOINT = "checkpoint.npz"
HACKS = frozenset({"rejected", "major_hacking"})  # reward gates
PARTS = ("base", "speed", "own_weight", "factor")  # components of a passing program's reward, in addition to speedup and own share


class CannotTrain(RuntimeError):
    """Raised if training is not possible. The message says what to do."""


class Problems(Protocol):
    """The interface of `agents.rl.client.EnvironmentClient`."""

    def reset(self, problem: str | None = None, seed: int | None = None) -> dict[str, Any]: ...

    def step(self, episode_id: str, *, program: str | None = None, reply: str | None = None) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Config:
    """The defaults and their meanings are in `agents.rl.defaults`."""

    steps: int
    prompts: int
    group: int
    most_tokens: int
    turns: int
    discount: float
    learning_rate: float
    warm_up: int
    decay: int
    clip_low: float
    clip_high: float
    kl: float
    passes: int
    batch: int
    temperature: float
    most_norm: float
    rank: int
    alpha: float
    seed: int
    save_every: int
    recompute: int
    at_once: int
    apart: int

    @classmethod
    def of(cls, **changed: float) -> Config:
        """Returns the defaults with the given changes. Raises `CannotTrain` for invalid values."""
        made = cls(**{name: value for name, (value, _) in CONFIG.items()} | changed)  # type: ignore[arg-type]  # whole numbers stay whole in CONFIG
        positive = (
            "steps",
            "prompts",
            "most_tokens",
            "turns",
            "learning_rate",
            "passes",
            "batch",
            "temperature",
            "most_norm",
            "save_every",
            "at_once",
        )
        for name in positive:
            if not getattr(made, name) > 0:
                raise CannotTrain(f"{name} must be more than 0")
        if made.group < 2 or made.rank < 0 or made.kl < 0 or made.warm_up < 0:
            raise CannotTrain("a group has at least 2 replies; rank, kl and warm_up must not be negative")
        return made

    def rate(self, step: int) -> float:
        """Returns the learning rate of a step, counted from 0."""
        risen = min(1.0, (step + 1) / self.warm_up) if self.warm_up else 1.0
        return self.learning_rate * risen * ((1 - step / self.steps) if self.decay else 1.0)


@dataclass
class Sample:
    """One turn: the policy saw `prompt`, wrote `reply`, and received `score`."""

    group: int
    turn: int
    prompt: list[int]
    reply: list[int]
    text: str
    problem: str
    score: dict[str, Any] = field(default_factory=dict)
    reward: float | None = None
    advantage: float | None = None
    old: Tensor | None = None  # log probabilities of the reply's tokens at sampling time
    reference: Tensor | None = None
    asked: str = ""  # the prompt's text
    feedback: str = ""  # the verifier's feedback on the program


@dataclass
class Trainer:
    """Trains in `folder` and writes `metrics.jsonl` with one line per step, `rollouts.jsonl` with one line per sample, `checkpoint.npz`, and
    `run.json` with `about` (the model's name, where it runs, and the team that may see the rollouts). Resumes from the files it finds there."""

    policy: Policy
    config: Config
    folder: Path
    say: Callable[[str], None] = lambda line: None
    kind: str = "grpo"
    about: Mapping[str, Any] = field(default_factory=dict)
    step: int = 0
    _reference: Any = field(default=None, repr=False)
    _writing: float = field(default=0.0, repr=False)  # seconds of the current step in which replies were sampled

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.config.rank:
            adapt(self.policy.module, self.config.rank, self.config.alpha, self.config.seed)
        elif self.config.kl:
            self._reference = copy.deepcopy(self.policy.module).requires_grad_(False)
        if self.config.recompute:
            self.policy.recompute()
        self.trained = {name: one for name, one in self.policy.module.named_parameters() if one.requires_grad}
        self.optimiser = torch.optim.AdamW(self.trained.values(), lr=self.config.learning_rate, weight_decay=0.0)
        self._continue()

    def reinforce(self, problems: Problems) -> list[dict[str, Any]]:
        """Runs GRPO up to step `config.steps`. Returns the metrics of all steps, including earlier ones."""
        with self._sitting():
            while self.step < self.config.steps:
                begun, self._writing = time.monotonic(), 0.0
                self._draw()
                samples = self.rollouts(problems)
                judged = time.monotonic()
                figures = self.update(samples)
                took = {"seconds": time.monotonic() - begun, "writing": self._writing, "updating": time.monotonic() - judged}
                told = {"step": self.step + 1, **figures, **summary(samples), **{name: round(value, 3) for name, value in took.items()}}
                self._after(told, list(_lines(self.step + 1, samples)))
        return records.read_lines(self.folder / METRICS)

    def supervise(self, pairs: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
        """Runs supervised training on prompts and replies, with `prompts` pairs per step. Pairs that exceed the model's context are left out."""
        known = [(self.policy.encode(asked), [*self.policy.encode(reply), self.policy.end]) for asked, reply in pairs]
        fitting = [pair for pair in known if len(pair[0]) + len(pair[1]) <= self.policy.longest]
        if not fitting:
            raise CannotTrain(f"every pair is longer than the {self.policy.longest} tokens that the model sees")
        if len(fitting) < len(known):
            self.say(f"{len(known) - len(fitting)} of {len(known)} pairs are longer than {self.policy.longest} tokens, and left out")
        with self._sitting():
            while self.step < self.config.steps:
                begun = time.monotonic()
                self._draw()
                told = self._imitate(fitting)
                self._after({"step": self.step + 1, **told, "seconds": round(time.monotonic() - begun, 3)}, [])
        return records.read_lines(self.folder / METRICS)

    def _sitting(self) -> AbstractContextManager[None]:
        return records.sitting(self.folder, {"kind": self.kind, **self.about, "config": asdict(self.config)}, self.step)

    def _imitate(self, known: Sequence[tuple[list[int], list[int]]]) -> dict[str, float]:
        """Takes one supervised step on pairs drawn by seed and step."""
        rng = random.Random(f"{self.config.seed}:{self.step}")
        rows = [known[rng.randrange(len(known))] for _ in range(self.config.prompts)]
        total = sum(len(reply) for _, reply in rows)
        loss = 0.0
        self.optimiser.zero_grad()
        for part in _parts(rows, self.config.batch):
            one = -torch.cat(self.chances(part)[0]).sum() / total
            one.backward()
            loss += one.item()
        return {"loss": loss, "norm": self._descend(), "tokens": total}

    def rollouts(self, problems: Problems) -> list[Sample]:
        """Runs `prompts` groups of episodes. Programs are verified while the next group's programs are generated, unless `apart` is set; the order of
        generation is fixed."""
        c = self.config
        samples: list[Sample] = []
        with ThreadPoolExecutor(c.at_once) as pool:
            due: list[tuple[int, dict[str, Any]]] = []
            for group in range(c.prompts):
                first = problems.reset(seed=self.step * c.prompts + group)
                again = [pool.submit(problems.reset, problem=first["problem"]) for _ in range(c.group - 1)]
                due += [(group, first), *((group, one.result()) for one in again)]
            for turn in range(c.turns):
                written = list(self._written(turn, due)) if c.apart else self._written(turn, due)
                asked = [(sample, pool.submit(problems.step, episode, reply=sample.text)) for sample, episode in written]
                due = []
                for sample, answering in asked:
                    answer = answering.result()
                    seen, sample.reward = answer["observation"], answer["reward"]
                    sample.score = {**seen.get("components", {}), "episode": seen["episode_id"]}
                    sample.feedback = str(seen.get("feedback", ""))
                    samples.append(sample)
                    if not answer["done"]:
                        due.append((sample.group, seen))
        weigh(samples, c.discount)
        return samples

    def _written(self, turn: int, due: Sequence[tuple[int, dict[str, Any]]]) -> Iterator[tuple[Sample, str]]:
        """Yields a reply to each pending prompt, together with its episode. The prompts of a group are sampled in one batch; if replies are judged
        afterwards, all prompts are."""
        c = self.config
        for group in dict.fromkeys(0 if c.apart else group for group, _ in due):
            mine = [(its, seen) for its, seen in due if c.apart or its == group]
            prompts = [self.policy.encode(seen["prompt"]) for _, seen in mine]
            longest = max(map(len, prompts))
            if longest + c.most_tokens > self.policy.longest:
                wants = f"{longest} tokens, and {c.most_tokens} may be written"
                raise CannotTrain(f"a prompt has {wants}: the model sees {self.policy.longest}; lower --most-tokens, or leave the problem out")
            begun = time.monotonic()
            replies = self.policy.sample(prompts, c.most_tokens, c.temperature)
            self._writing += time.monotonic() - begun
            for (its, seen), prompt, reply in zip(mine, prompts, replies, strict=True):
                yield Sample(its, turn, prompt, reply, self.policy.decode(reply), seen["problem"], asked=seen["prompt"]), seen["episode_id"]

    def update(self, samples: Sequence[Sample]) -> dict[str, float]:
        """Optimises the clipped objective in several passes over the samples that have an advantage."""
        c = self.config
        taught = [sample for sample in samples if sample.advantage is not None and sample.reply]
        figures = {"taught": len(taught), "loss": 0.0, "entropy": 0.0, "clipped": 0.0, "kl": 0.0, "norm": 0.0}
        if not taught:
            return figures
        with torch.no_grad():
            for part in _parts(taught, c.batch):
                for sample, old in zip(part, self.chances(_rows(part))[0], strict=True):
                    sample.old = old
                if c.kl:
                    for sample, reference in zip(part, self._as_before(_rows(part)), strict=True):
                        sample.reference = reference
        total = sum(len(sample.reply) for sample in taught)
        for turn in range(c.passes):
            order = list(taught)
            random.Random(f"{c.seed}:{self.step}:{turn}").shuffle(order)
            self.optimiser.zero_grad()
            for part in _parts(order, c.batch):
                for name, value in self._backward(part, total).items():
                    figures[name] += value / c.passes
            figures["norm"] += self._descend() / c.passes
        return figures

    def _backward(self, part: Sequence[Sample], total: int) -> dict[str, float]:
        """Accumulates the gradient of these samples' part of the objective."""
        c = self.config
        new, entropies = self.chances(_rows(part))
        chances, entropy = torch.cat(new), torch.cat(entropies)
        old = torch.cat([sample.old for sample in part if sample.old is not None])
        weight = torch.cat([torch.full((len(sample.reply),), float(sample.advantage or 0.0)) for sample in part]).to(chances.device)
        ratio = torch.exp(chances - old)
        bounded = torch.clamp(ratio, 1 - c.clip_low, 1 + c.clip_high)
        loss = -torch.minimum(ratio * weight, bounded * weight).sum() / total
        far = torch.zeros(())
        if c.kl:
            apart = torch.cat([sample.reference for sample in part if sample.reference is not None]) - chances
            far = (torch.exp(apart) - apart - 1).sum() / total  # the k3 estimator, which is never negative
            loss = loss + c.kl * far
        loss.backward()
        clipped = (ratio * weight > bounded * weight).float().sum() / total
        return {"loss": loss.item(), "entropy": entropy.sum().item() / total, "clipped": clipped.item(), "kl": far.item()}

    def chances(self, rows: Sequence[tuple[list[int], list[int]]]) -> tuple[list[Tensor], list[Tensor]]:
        """Returns the log probabilities of each reply's tokens, and the entropies at those positions, at the sampling temperature."""
        longest = max(len(prompt) + len(reply) for prompt, reply in rows)
        filled = [[*prompt, *reply, *[self.policy.end] * (longest - len(prompt) - len(reply))] for prompt, reply in rows]
        tokens = torch.tensor(filled, device=self.policy.device)
        lengths = torch.tensor([len(prompt) + len(reply) for prompt, reply in rows], device=self.policy.device)
        spread = F.log_softmax(self.policy.logits(tokens, lengths).float() / self.config.temperature, dim=-1)
        chosen = spread[:, :-1].gather(-1, tokens[:, 1:, None]).squeeze(-1)
        entropy = -(spread.exp() * spread).sum(-1).detach()
        spans = [slice(len(prompt) - 1, len(prompt) + len(reply) - 1) for prompt, reply in rows]
        return [chosen[at, span] for at, span in enumerate(spans)], [entropy[at, span] for at, span in enumerate(spans)]

    def _as_before(self, rows: Sequence[tuple[list[int], list[int]]]) -> list[Tensor]:
        if self._reference is None:
            with unadapted(self.policy.module):
                return self.chances(rows)[0]
        now, self.policy.module = self.policy.module, self._reference
        try:
            return self.chances(rows)[0]
        finally:
            self.policy.module = now

    def _descend(self) -> float:
        norm = float(torch.nn.utils.clip_grad_norm_(list(self.trained.values()), self.config.most_norm))
        if not math.isfinite(norm):
            raise CannotTrain(f"the gradient of step {self.step + 1} is not a number: lower the learning rate, and continue from the checkpoint")
        for group in self.optimiser.param_groups:
            group["lr"] = self.config.rate(self.step)
        self.optimiser.step()
        return norm

    def _draw(self) -> None:
        torch.manual_seed(random.Random(f"{self.kind}:{self.config.seed}:{self.step}").getrandbits(63))

    def _after(self, told: dict[str, Any], rollouts: Sequence[dict[str, Any]]) -> None:
        self.step += 1
        records.append(self.folder / ROLLOUTS, rollouts)
        records.append(self.folder / METRICS, [told])
        if self.step % self.config.save_every == 0 or self.step == self.config.steps:
            self.save()
        shown = {name: value for name, value in told.items() if value is not None and not isinstance(value, dict)}
        self.say(" ".join(f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in shown.items()))

    def save(self) -> None:
        """Saves the checkpoint atomically."""
        held = {f"weight {name}": one for name, one in self.trained.items()}
        moments = self.optimiser.state_dict()["state"]
        held |= {f"moment {number} {name}": value for number, state in moments.items() for name, value in state.items()}
        tensors.write(self.folder / CHECKPOINT, held, {"kind": self.kind, "step": self.step, "config": asdict(self.config)})

    def _continue(self) -> None:
        """Resumes from the checkpoint if there is one. Lines of later steps are removed because those steps are repeated."""
        path = self.folder / CHECKPOINT
        if path.exists():
            held, said = tensors.read(path)
            weights = weights_of(held)
            free = {"save_every", "recompute", "at_once", "apart", *(() if self.config.decay else ("steps",))}
            other = sorted(name for name, value in asdict(self.config).items() if name not in free and said["config"].get(name) != value)
            if said["kind"] != self.kind or other or set(weights) != set(self.trained):
                which = ", ".join(other) or "another model, or another kind of training"
                raise CannotTrain(f"{self.folder} was trained with other settings ({which}): choose another folder")
            restore(self.policy, weights)
            moments: dict[int, dict[str, Tensor]] = {}
            for key, value in held.items():
                if key.startswith("moment "):
                    _, number, name = key.split(" ", 2)
                    moments.setdefault(int(number), {})[name] = value
            self.optimiser.load_state_dict({**self.optimiser.state_dict(), "state": moments})
            self.step = said["step"]
        for name in (METRICS, ROLLOUTS):
            records.cut(self.folder / name, self.step)


def weights_of(held: dict[str, Tensor]) -> dict[str, Tensor]:
    """Returns the weights from a checkpoint's tensors, keyed by name."""
    return {name.removeprefix("weight "): value for name, value in held.items() if name.startswith("weight ")}


def restore(policy: Policy, weights: dict[str, Tensor]) -> None:
    """Loads the trained weights from a checkpoint into a policy with the same adapters."""
    known = dict(policy.module.named_parameters())
    with torch.no_grad():
        for name, value in weights.items():
            known[name].copy_(value)


def weigh(samples: Sequence[Sample], discount: float) -> None:
    """Computes the advantages per group and turn. A turn's return is its reward plus the discounted rewards of later turns, up to the first turn that
    is not a sample."""
    following: dict[tuple[str, int], Sample] = {(sample.score["episode"], sample.turn): sample for sample in samples}

    def reached(sample: Sample) -> float | None:
        if sample.reward is None:
            return None
        after = following.get((sample.score["episode"], sample.turn + 1))
        later = reached(after) if after is not None else None
        return sample.reward + discount * (later or 0.0)

    for place in dict.fromkeys((sample.group, sample.turn) for sample in samples):
        mine = [sample for sample in samples if (sample.group, sample.turn) == place]
        for sample, advantage in zip(mine, advantages([Scored(reached(sample)) for sample in mine]), strict=True):
            sample.advantage = advantage


def summary(samples: Sequence[Sample]) -> dict[str, Any]:
    """Summarises a step's samples. `hacks` is a share of all samples; `speedup` is the geometric mean of the lower ends of the samples that
    passed."""
    judged = [sample for sample in samples if sample.reward is not None]
    passed = [sample for sample in judged if sample.score.get("status") == "passed"]
    lows = [math.log(sample.score["low"]) for sample in passed if "low" in sample.score]
    own = [sample.score["own_share"] or 0.0 for sample in passed if "own_share" in sample.score]
    parts = {name: _mean([float(sample.score[name]) for sample in passed if name in sample.score]) for name in PARTS}
    rubrics = [sample.score["rubric"] for sample in passed if "rubric" in sample.score]
    groups = {(sample.group, sample.turn) for sample in samples}
    teaching = {(sample.group, sample.turn) for sample in samples if sample.advantage is not None}
    return {
        "samples": len(samples),
        "no_sample": len(samples) - len(judged),
        "reward": _mean([float(sample.reward or 0.0) for sample in judged]),
        "success": _mean([float(sample in passed) for sample in judged]),
        "speedup": math.exp(sum(lows) / len(lows)) if lows else None,
        "own_share": _mean(own),
        "hacks": _mean([float(sample.score.get("gate") in HACKS) for sample in samples]),
        "groups_dropped": len(groups - teaching),
        "length": _mean([float(len(sample.reply)) for sample in samples]),
        "parts": parts,
        "rubric": {name: _mean([float(one[name]) for one in rubrics if name in one]) for name in sorted(set().union(*rubrics))},
        "verdicts": dict(Counter(verdict(sample) for sample in samples)),
    }


def verdict(sample: Sample) -> str:
    """Returns the result of a sample in one word."""
    if sample.reward is None:
        return "no_sample"
    gate = sample.score.get("gate")
    return str(gate if gate in HACKS else sample.score.get("status"))


def _lines(step: int, samples: Sequence[Sample]) -> Iterator[dict[str, Any]]:
    """Yields the rollouts to be written to the file. The first rollout of a group also contains the prompt of the whole group: the task, and the
    program to improve."""
    shown: set[int] = set()
    for sample in samples:
        line = {"step": step, "group": sample.group, "turn": sample.turn, "problem": sample.problem, "reply": sample.text}
        line |= {"program": program_at(sample.text), "reward": sample.reward, "advantage": sample.advantage, "score": sample.score}
        line |= {"tokens": len(sample.reply), "feedback": sample.feedback}
        if sample.turn == 0 and sample.group not in shown:
            shown.add(sample.group)
            line["task"], line["before"] = shown_in(sample.asked)
        yield line


def _rows(samples: Sequence[Sample]) -> list[tuple[list[int], list[int]]]:
    return [(sample.prompt, sample.reply) for sample in samples]


def _parts(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for at in range(0, len(items), size):
        yield items[at : at + size]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
