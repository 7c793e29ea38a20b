"""The replies of one step. `rollouts.jsonl` can be large, but it is sorted by step, so a binary search finds the step without reading the whole
file."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from webapp.learning.files import Problem, figure, object_in, text, unreadable

MOST_STEP_BYTES = 32 << 20  # total size of one step's lines
MEND = "Continue the training from its checkpoint: steps after it are written again."
HACKS = ("rejected", "major_hacking")  # as in agents/rl/training.py


@dataclass(frozen=True)
class Turn:
    """One reply of the model and its outcome."""

    number: int  # 0-based
    reply: str
    program: str
    reward: float | None
    advantage: float | None
    tokens: int
    feedback: str
    score: dict[str, Any]

    @property
    def verdict(self) -> str:
        """Returns a key of `STATUSES`."""
        if self.reward is None:
            return "no_sample"
        gate = self.score.get("gate")
        return "hack" if gate == "major_hacking" else text(gate if gate in HACKS else self.score.get("status"), 40)

    @property
    def speedup(self) -> float | None:
        return figure(self.score.get("low"))

    @property
    def own_share(self) -> float | None:
        return figure(self.score.get("own_share"))

    @property
    def program_class(self) -> str:
        return text(self.score.get("class"), 40)

    @property
    def no_sample(self) -> str:
        return ": ".join(part for part in (text(self.score.get("no_sample"), 40), text(self.score.get("why"), 500)) if part)

    @property
    def rubric(self) -> list[tuple[str, float]]:
        scores = self.score.get("rubric")
        known = scores.items() if isinstance(scores, dict) else []
        return [(text(name, 60).replace("_", " "), value) for name, one in known if (value := figure(one)) is not None]

    @property
    def findings(self) -> list[str]:
        found = self.score.get("findings")
        return [text(one, 200) for one in found][:50] if isinstance(found, list) else []

    @property
    def parts(self) -> list[tuple[str, float]]:
        """Returns the components of the reward, in the order in which they are computed."""
        names = {
            "speed": "speed, capped",
            "own_weight": "weight of own kernels",
            "base": "base",
            "rubric_total": "rubric total",
            "factor": "rubric factor",
        }
        return [(label, value) for name, label in names.items() if (value := figure(self.score.get(name))) is not None]


@dataclass
class Rollout:
    """An episode: a single turn, or a loop of program, diagnosis and improved program."""

    number: int  # number in its step, 1-based
    group: int
    problem: str
    task: str = ""
    before: str = ""  # the program from which the first turn starts
    turns: list[Turn] = field(default_factory=list)

    @property
    def last(self) -> Turn:
        return self.turns[-1]


def rollouts_of(path: Path, step: int) -> list[Rollout]:
    """Returns the rollouts of one step, or an empty list if there is no such step. Raises `Problem`."""
    try:
        with path.open("rb") as file:
            lines = _lines(file, step)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise unreadable(path.name, error) from None
    shown: dict[int, tuple[str, str]] = {}
    found: dict[tuple[int, str], Rollout] = {}
    for at, line in enumerate(lines):
        group, score = _whole(line.get("group")), line.get("score")
        score = score if isinstance(score, dict) else {}
        if "task" in line:
            shown[group] = text(line.get("task")), text(line.get("before"))
        key = group, text(score.get("episode"), 300) or str(at)
        if key not in found:
            found[key] = Rollout(len(found) + 1, group, text(line.get("problem"), 300), *shown.get(group, ("", "")))
        found[key].turns.append(_turn(line, score))
    return list(found.values())


def _turn(line: dict[str, Any], score: dict[str, Any]) -> Turn:
    reply, place = text(line.get("reply")), line.get("program")
    begin, end = (max(0, _whole(one)) for one in place) if isinstance(place, list) and len(place) == 2 else (0, len(reply))
    return Turn(
        number=_whole(line.get("turn")),
        reply=reply,
        program=reply[begin:end],
        reward=figure(line.get("reward")),
        advantage=figure(line.get("advantage")),
        tokens=_whole(line.get("tokens")),
        feedback=text(line.get("feedback"), 10_000),
        score=score,
    )


def _lines(file: BinaryIO, step: int) -> list[dict[str, Any]]:
    """Returns the step's lines. The bytes in [0, low) hold earlier steps. Lines that begin at `high` or later belong to this step or a later one."""
    low, high = 0, file.seek(0, 2)
    while low < high:
        middle = (low + high) // 2
        file.seek(_next_line(file, middle))
        found = _first_step(file, high)
        if found is not None and found < step:
            low = file.tell()
        else:
            high = middle
    file.seek(_next_line(file, low))
    lines: list[dict[str, Any]] = []
    size = 0
    while (line := file.readline()).endswith(b"\n"):
        read = _object(line, file.tell() - len(line))
        if _whole(read.get("step")) != step:
            break
        size += len(line)
        if size > MOST_STEP_BYTES:
            raise Problem("rollouts.jsonl", f"step {step} is larger than {MOST_STEP_BYTES >> 20} MiB.", "Open the file with a tool of your own.")
        lines.append(read)
    return lines


def _first_step(file: BinaryIO, high: int) -> int | None:
    """Returns the step of the next readable line that begins before `high`, or None if there is none. Unreadable lines are skipped."""
    while file.tell() < high and (line := file.readline()).endswith(b"\n"):
        try:
            return _whole(_object(line, 0).get("step"))
        except Problem:
            continue
    return None


def _next_line(file: BinaryIO, at: int) -> int:
    """Returns the position of the first line that begins at `at` or later."""
    if at == 0:
        return file.seek(0)
    file.seek(at - 1)
    file.readline()
    return file.tell()


def _object(line: bytes, at: int) -> dict[str, Any]:
    return object_in(line, f"rollouts.jsonl, at byte {at:,}", MEND)


def _whole(value: Any) -> int:
    found = figure(value)
    return int(found) if found is not None and abs(found) < 1 << 53 else 0
