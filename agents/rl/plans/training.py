"""Trains the policy on landscapes, first by imitation, then by policy gradient.

*Imitation* (DAgger, arXiv 1011.0686): in the states that the policy itself reaches, the label is a distribution over the legal moves, based on the
gain of each move according to the table. *Policy gradient*: the searches of one task form a group. A move's advantage is its return minus the
estimated value of the state, relative to the mean of the other searches in the group at the same move (leave one out). The objective is the clipped
one of `agents.rl.training`. The value is the logarithm of the share of the best known speed reached after each program, with most of the weight on
the share after 8 programs and at the end.

All randomness in a step comes from the seed and the step number, so training that was interrupted and resumed produces the same curve.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from agents.moving.features import Seen
from agents.rl import records, tensors
from agents.rl.plans.episodes import Course, Episode
from agents.rl.plans.network import Batch, Network
from agents.rl.records import METRICS

CHECKPOINT = "checkpoint.npz"
EARLY = 8  # number of programs after which the `early` figure is taken
BUDGETS = (8, 16, 24)  # number of programs that a search may measure during training
WORST = -0.3  # logarithm of the gain assigned to a program that is incorrect or much slower
MARGIN = 50.0  # scale factor for the value of the share reached, so that returns are of order 1
NEAR_BEST = 0.95


class CannotTrain(ValueError):
    """Raised if training is not possible. The message says what to do."""


@dataclass(frozen=True)
class Config:
    steps: int = 70
    imitation: int = 55  # number of imitation steps
    tasks: int = 9  # tasks per step
    group: int = 8  # concurrent searches per task
    learning_rate: float = 2e-3  # learning rate for imitation; a quarter of it is used afterwards
    sharpness: float = 0.02  # log gain that makes a move e times as likely in a label
    wandering: float = 0.2  # share of moves drawn at random during imitation
    elsewhere: float = 0.5  # share of groups that start at a random point as if it were the compiler's own choice
    varied: float = 0.7  # share of groups that use a randomly varied task, so that the policy relies on measurements more than on the kind of task
    variation: float = 0.12  # largest standard deviation (the actual one is drawn at random) of the change in log time for each value of each choice
    hidden: int = 32
    blind: float = 0.15  # share of a row's features that are hidden during imitation, so that the policy does not rely on any single one
    decay: float = 0.05  # weight decay per step
    patience: float = 0.6  # discount in the labels for a gain that needs one more change
    anchor: float = 0.3  # weight of the labels while training by policy gradient
    clip_low: float = 0.2
    clip_high: float = 0.28
    entropy: float = 0.003  # weight of the entropy term in the objective
    passes: int = 4  # number of passes over the moves of a step
    most_norm: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.steps < 1 or not 0 <= self.imitation <= self.steps or self.tasks < 1 or self.group < 2 or self.passes < 1:
            raise CannotTrain("steps, tasks and passes are at least 1, a group is at least 2 searches, and imitation is a part of the steps")


@dataclass
class Moved:
    """One move in one search."""

    course: Course
    group: int
    turn: int
    seen: Seen
    chosen: int
    chance: float  # log probability of the move when it was drawn
    back: float = 0.0  # the move's return
    advantage: float = 0.0


@dataclass
class Trainer:
    """Trains in `folder` and writes `run.json`, `metrics.jsonl` and `checkpoint.npz`, in the same format as the other trainers. Resumes from
    the files it finds there."""

    courses: Sequence[Course]
    config: Config
    folder: Path
    about: Mapping[str, Any] = field(default_factory=dict)
    say: Callable[[str], None] = lambda line: None
    step: int = 0

    def __post_init__(self) -> None:
        if not self.courses:
            raise CannotTrain("there is no task to train on: a fold needs tasks of at least two kinds")
        self.folder.mkdir(parents=True, exist_ok=True)
        self.network = Network(self.config.seed, self.config.hidden)
        self.optimiser = torch.optim.AdamW(self.network.parameters(), lr=self.config.learning_rate, weight_decay=self.config.decay)
        self._continue()

    def train(self, until: int | None = None) -> list[dict[str, Any]]:
        """Trains up to step `until`, or to the last step. Returns the metrics of all steps, including earlier ones."""
        said = {"kind": "plans", "team": "", "model": "plans", "device": "cpu", **self.about, "config": asdict(self.config)}
        with records.sitting(self.folder, said, self.step):
            while self.step < min(until or self.config.steps, self.config.steps):
                begun = time.monotonic()
                imitating = self.step < self.config.imitation
                random_ = random.Random(f"{self.config.seed}:{self.step}")
                torch.manual_seed(random_.randrange(1 << 31))
                moves, figures = self.searches(random_, self.config.wandering if imitating else 0.0)
                figures |= self.imitate(moves) if imitating else self.reinforce(moves)
                told = {"step": self.step + 1, **figures, "seconds": round(time.monotonic() - begun, 3)}
                self.step += 1
                self._save(told)
        return records.read_lines(self.folder / METRICS)

    @torch.no_grad()
    def searches(self, draw: random.Random, wandering: float) -> tuple[list[Moved], dict[str, Any]]:
        """Runs groups of searches that advance together, one move at a time."""
        chosen = draw.sample(list(self.courses), min(self.config.tasks, len(self.courses)))
        chosen = [course.varied(draw, self.config.variation) if draw.random() < self.config.varied else course for course in chosen]
        budgets = [draw.choice(BUDGETS) for _ in chosen]
        starts = [course.drawn(draw) if draw.random() < self.config.elsewhere else None for course in chosen]
        going = [
            (group, Episode(course, f"{self.config.seed}:{self.step}:{group}:{one}", budget, start))
            for group, (course, budget, start) in enumerate(zip(chosen, budgets, starts, strict=True))
            for one in range(self.config.group)
        ]
        moves: list[tuple[Moved, Episode]] = []
        due, turn = list(going), 0
        while due:
            seen = [(group, episode, look) for group, episode in due if not episode.over and (look := episode.see()).targets]
            due = [(group, episode) for group, episode, _ in seen]
            if not seen:
                break
            batch = Batch([look for _, _, look in seen])
            chances = batch.log_chances(self.network(batch.rows)[0])
            for number, (group, episode, look) in enumerate(seen):
                mine = chances[batch.first[number] : batch.first[number] + len(look.targets)]
                place = int(torch.multinomial(mine.exp(), 1)) if draw.random() >= wandering else draw.randrange(len(look.targets))
                moves.append((Moved(episode.course, group, turn, look, place, float(mine[place])), episode))
                episode.take(look.targets[place])
            turn += 1
        for moved, episode in moves:
            moved.back = worth_after(episode, moved.turn)
        return [moved for moved, _ in moves], _figures([episode for _, episode in going])

    def imitate(self, moves: Sequence[Moved]) -> dict[str, Any]:
        """Minimises the cross entropy against the labels and the error of the expected gain against the table's gain."""
        labels = self.labels(moves)
        aim = torch.cat([torch.tensor(gains_of(moved.course, moved.seen), dtype=torch.float32) for moved in moves])
        batch, worth = Batch([moved.seen for moved in moves]), torch.tensor([moved.back for moved in moves])
        told: dict[str, Any] = {}
        for _ in range(self.config.passes):
            preferences, expected = self.network(F.dropout(batch.rows, self.config.blind))
            chances = batch.log_chances(preferences)
            surprise = -batch.sums(labels * chances).mean()
            missed = F.huber_loss(expected, aim, delta=0.05) * 100
            loss = surprise + missed + 0.1 * F.mse_loss(self.network.worth(batch.states).squeeze(1), worth)
            norm = self._descend(loss, self.config.learning_rate)
            told = {"loss": loss.item(), "surprise": surprise.item(), "missed": missed.item(), "norm": norm}
        return {**told, "entropy": _entropy(batch, chances).item()}

    def labels(self, moves: Sequence[Moved]) -> Tensor:
        """Returns an array of shape (rows,): the target probability of each move in its state."""
        promises = [torch.tensor(promises_of(moved.course, moved.seen, self.config.patience), dtype=torch.float32) for moved in moves]
        return torch.cat([F.softmax(one / self.config.sharpness, dim=0) for one in promises])

    def reinforce(self, moves: Sequence[Moved]) -> dict[str, Any]:
        """Optimises the clipped objective in several passes over all moves."""
        c = self.config
        batch = Batch([moved.seen for moved in moves])
        with torch.no_grad():
            thought = self.network.worth(batch.states).squeeze(1)
        weigh(moves, thought.tolist())
        place = batch.first + torch.tensor([moved.chosen for moved in moves])
        before, advantage = torch.tensor([moved.chance for moved in moves]), torch.tensor([moved.advantage for moved in moves])
        worth, labels = torch.tensor([moved.back for moved in moves]), self.labels(moves)
        told: dict[str, Any] = {}
        for _ in range(c.passes):
            chances = batch.log_chances(self.network(batch.rows)[0])
            ratio = (chances[place] - before).exp()
            clipped = ratio.clamp(1 - c.clip_low, 1 + c.clip_high)
            entropy = _entropy(batch, chances)
            objective = torch.minimum(ratio * advantage, clipped * advantage).mean() + c.entropy * entropy
            loss = 0.1 * F.mse_loss(self.network.worth(batch.states).squeeze(1), worth) - objective
            if c.anchor:
                blind = batch.log_chances(self.network(F.dropout(batch.rows, c.blind))[0])
                loss = loss - c.anchor * batch.sums(labels * blind).mean()
            norm = self._descend(loss, c.learning_rate / 4)
            told = {"loss": loss.item(), "norm": norm, "entropy": entropy.item(), "clipped": (ratio != clipped).float().mean().item()}
        return told

    def _descend(self, loss: Tensor, rate: float) -> float:
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        self.optimiser.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.config.most_norm)
        self.optimiser.step()
        return float(norm)

    def _save(self, told: Mapping[str, Any]) -> None:
        held = {f"w.{name}": value for name, value in self.network.state_dict().items()}
        names = list(dict(self.network.named_parameters()))
        for number, moments in self.optimiser.state_dict()["state"].items():
            held |= {f"m.{names[number]}.{name}": torch.as_tensor(value) for name, value in moments.items()}
        records.append(self.folder / METRICS, [told])
        tensors.write(self.folder / CHECKPOINT, held, {"step": self.step, "config": asdict(self.config), "tasks": self._names()})
        self.say(f"{self.folder.name} step {self.step}: share {told['early']:.4f} after {EARLY}, {told['share']:.4f} at the end")

    def _names(self) -> list[str]:
        return sorted(course.landscape.name for course in self.courses)

    def _continue(self) -> None:
        path = self.folder / CHECKPOINT
        if path.exists():
            held, said = tensors.read(path)
            if (said["config"], said["tasks"]) != (asdict(self.config), self._names()):
                raise CannotTrain(f"{self.folder} holds a training with other settings or tasks: choose another --out")
            self.step = int(said["step"])
            self.network.load_state_dict({name[2:]: value for name, value in held.items() if name.startswith("w.")})
            self._restore(held)
        records.cut(self.folder / METRICS, self.step)

    def _restore(self, held: Mapping[str, Tensor]) -> None:
        state = {}
        for number, (name, _) in enumerate(self.network.named_parameters()):
            start = f"m.{name}."
            state[number] = {key.removeprefix(start): value for key, value in held.items() if key.startswith(start)}
        self.optimiser.load_state_dict({**self.optimiser.state_dict(), "state": state})


def gains_of(course: Course, seen: Seen) -> list[float]:
    """Returns the logarithm of each move's gain over the fastest program according to the table. Policies never see these values."""
    return [_gain(course.time(target), _held(course, seen)) for target in seen.targets]


def promises_of(course: Course, seen: Seen, patience: float) -> list[float]:
    """Returns each move's gain or, if larger, `patience` times the gain of the best single change that could follow, because a path may cross a
    plateau."""
    held = _held(course, seen)
    return [max(_gain(course.time(target), held), patience * _gain(course.near(target), held)) for target in seen.targets]


def _held(course: Course, seen: Seen) -> float:
    return min((time for time in map(course.time, seen.known) if time is not None), default=course.landscape.eager_us)


def _gain(us: float | None, held: float) -> float:
    return float(np.clip(np.log(held / us), WORST, -WORST)) if us is not None else WORST


def worth_after(episode: Episode, turn: int) -> float:
    """Computes the return from this move on: how far the share of the best known speed rises above its value before the move."""
    logs = np.log(episode.shares)
    logs = np.concatenate([logs, np.full(max(episode.budget - len(logs), 0), logs[-1])])  # there was nothing left to try
    weights = np.full(episode.budget, 1 / episode.budget)
    weights[[min(EARLY, episode.budget) - 1, episode.budget - 1]] += 0.5
    return float(MARGIN * ((logs - logs[turn]) * weights)[turn + 1 :].sum())


def weigh(moves: Sequence[Moved], thought: Sequence[float]) -> None:
    """Sets the advantages, scaled to a standard deviation of 1 over all moves. A move without another search to compare it with has advantage 0."""
    beyond: dict[tuple[int, int], list[tuple[Moved, float]]] = {}
    for moved, worth in zip(moves, thought, strict=True):
        beyond.setdefault((moved.group, moved.turn), []).append((moved, moved.back - worth))
    for alike in beyond.values():
        total = sum(value for _, value in alike)
        for moved, value in alike:
            moved.advantage = value - (total - value) / (len(alike) - 1) if len(alike) > 1 else 0.0
    scale = float(np.std([moved.advantage for moved in moves])) if moves else 0.0
    for moved in moves:
        moved.advantage = float(np.clip(moved.advantage / scale, -5, 5)) if scale > 1e-9 else 0.0


def _entropy(batch: Batch, chances: Tensor) -> Tensor:
    return -batch.sums(chances.exp() * chances).mean()


def _figures(episodes: Sequence[Episode]) -> dict[str, Any]:
    """Returns the means over all searches of a step. `early` and `share`: the share of the best known speed after 8 programs and at the end."""
    early, last = ([one.shares[min(at, len(one.shares)) - 1] for one in episodes] for at in (EARLY, max(BUDGETS)))
    return {
        "samples": len(episodes),
        "reward": float(np.mean([np.log(share) for share in last])),
        "early": float(np.mean(early)),
        "share": float(np.mean(last)),
        "success": float(np.mean([share >= NEAR_BEST for share in last])),
    }
