"""Connects the environment to other trainers: both of TRL's reward interfaces, a taskset for Prime Intellect's `verifiers` (v1), and Harbor's task
folders.

All three use the server (`python -m agents.rl serve`), so they judge programs in the same way. The first two import their package only on demand.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from agents.rl.client import EnvironmentClient
from agents.rl.environment import Problem
from agents.rl.prompts import ASKS, RULES, program_in

VERIFIERS = "the bridge to `verifiers` needs that package (Python 3.11+, v0.4): pip install verifiers"


def trl_environment(address: str, token: str | None = None, connect: Callable[..., EnvironmentClient] = EnvironmentClient) -> type:
    """Returns a class for `GRPOTrainer(environment_factory=...)` with `reset`, the `submit_program` tool, and `get_reward`. Rows of the data set may
    name a `problem`. A rollout that is not a sample gets a reward of None, which TRL leaves out of its sum."""

    class KernelEnvironment:
        def __init__(self) -> None:
            self._client = connect(address, token)
            self._episode, self._done = "", True
            self._reward: float | None = None

        def reset(self, problem: str | None = None, **row: Any) -> str:
            seen = self._client.reset(problem)
            self._episode, self._reward, self._done = seen["episode_id"], 0.0, False
            return str(seen["prompt"])

        def submit_program(self, program: str) -> str:
            """
            Have a program verified and measured.

            Args:
                program: The whole Python source, with a class ModelNew.

            Returns:
                The verifier's verdict on it.
            """
            if self._done:
                raise ValueError("The episode is over.")
            answer = self._client.step(self._episode, program=program)
            self._reward, self._done = answer["reward"], answer["done"]
            seen = answer["observation"]
            return f"{seen['status']}\n{seen['feedback']}".strip()

        def get_reward(self) -> float | None:
            """Returns the last program's reward; 0 if none was submitted."""
            return self._reward

    return KernelEnvironment


def trl_reward(client: EnvironmentClient, log: Callable[[dict[str, Any]], None] = lambda line: None) -> Callable[..., list[float | None]]:
    """Returns a function for `GRPOTrainer(reward_funcs=...)`, for models that do not call tools. The last fenced block of the reply is the program.
    The data set needs the columns `prompt` and `task` (`trl_rows`). For skill 2, it also needs `skill` and `before`, the earlier report as JSON."""

    def stitchwork_reward(completions: Sequence[Any], task: Sequence[str], **row: Any) -> list[float | None]:
        skills, befores = row.get("skill") or ["write"] * len(task), row.get("before") or [""] * len(task)
        items = []
        for completion, source, skill, before in zip(completions, task, skills, befores, strict=True):
            reply = completion if isinstance(completion, str) else str(completion[-1]["content"])
            item = {"task": source, "program": program_in(reply), "skill": skill}
            items.append(item | ({"before": json.loads(before)} if before else {}))
        scores = client.score(items)
        for one in scores:
            log(one)
        return [one["reward"] for one in scores]

    return stitchwork_reward


def trl_rows(problems: Sequence[Problem]) -> list[dict[str, Any]]:
    """Returns rows for `datasets.Dataset.from_list`."""
    return [
        {
            "prompt": problem.prompt(),
            "problem": problem.id,
            "task": problem.task,
            "skill": "improve" if problem.report is not None else "write",
            "before": problem.report.model_dump_json() if problem.report is not None else "",
        }
        for problem in problems
    ]


def verifiers_taskset(problems: Sequence[Problem], client: EnvironmentClient) -> Any:
    """Returns a single-turn taskset for `verifiers` v1, which gets the reward from the server and reports its components as metrics. Raises
    `ImportError` with a message that says what to do."""
    try:
        import verifiers.v1 as vf
    except ImportError:
        raise ImportError(VERIFIERS) from None

    class KernelData(vf.TaskData):  # type: ignore[misc]  # an optional package without types
        source: str
        skill: str = "write"
        before: str = ""

    class KernelTask(vf.Task[KernelData]):  # type: ignore[misc]  # as above
        @vf.reward  # type: ignore[untyped-decorator]  # as above
        async def verified(self, trace: Any) -> float:
            import asyncio

            item = {"task": self.data.source, "program": program_in(trace.last_reply or ""), "skill": self.data.skill}
            item |= {"before": json.loads(self.data.before)} if self.data.before else {}
            (scored,) = await asyncio.to_thread(client.score, [item])
            trace.info["stitchwork"] = scored
            if scored["reward"] is None:
                raise RuntimeError(f"no sample: {scored.get('no_sample')}")  # rollouts that end in an error are left out of training
            return float(scored["reward"])

    class KernelTaskset(vf.Taskset[KernelTask, vf.TasksetConfig]):  # type: ignore[misc]  # as above
        def load(self) -> list[Any]:
            rows = trl_rows(problems)
            return [
                KernelTask(KernelData(id=row["problem"], prompt=row["prompt"], source=row["task"], skill=row["skill"], before=row["before"]))
                for row in rows
            ]

    return KernelTaskset(vf.TasksetConfig())


HARBOR_TOML = """version = "1.0"

[metadata]
name = "{name}"
tags = ["cuda", "pytorch", "stitchwork"]

[agent]
timeout_sec = 1800.0

[verifier]
timeout_sec = 1800.0

[environment]
allow_internet = true
"""
HARBOR_TEST = """#!/bin/bash
# Asks the reward server; the program is never run here. STITCHWORK_RL_URL is its address, STITCHWORK_RL_TOKEN its token.
mkdir -p /logs/verifier
python3 /tests/ask.py /tests/task.py /app/program.py > /logs/verifier/score.json || exit 1
python3 - <<'END'
import json
score = json.load(open("/logs/verifier/score.json"))
if score["reward"] is None:
    raise SystemExit("no sample: " + str(score.get("no_sample")))
open("/logs/verifier/reward.txt", "w").write(str(score["reward"]))
END
"""
HARBOR_ASK = '''"""Prints the score of a program as JSON. Standard library only."""
import json, os, pathlib, sys, time, urllib.request

task, program = (pathlib.Path(path) for path in sys.argv[1:])
item = {"task": task.read_text(), "program": program.read_text() if program.is_file() else "", "skill": "write"}
headers = {"Content-Type": "application/json"}
if os.environ.get("STITCHWORK_RL_TOKEN"):
    headers["Authorization"] = "Bearer " + os.environ["STITCHWORK_RL_TOKEN"]
url = os.environ["STITCHWORK_RL_URL"].rstrip("/") + "/score"
while True:
    request = urllib.request.Request(url, json.dumps({"items": [item]}).encode(), headers)
    with urllib.request.urlopen(request, timeout=1700) as answer:
        (score,) = json.load(answer)["scores"]
    if score.get("no_sample") != "full":
        break
    time.sleep(score["retry"])
print(json.dumps(score))
'''
HARBOR_DOCKERFILE = "FROM python:3.12-slim\nWORKDIR /app\nCOPY task.py /app/task.py\n"


def write_harbor(problems: Sequence[Problem], folder: Path) -> int:
    """Writes a task folder for each problem of skill 1, with instructions, an image, and a test that queries the server. Returns the number of
    folders written."""
    wanted = [problem for problem in problems if problem.skill == "write"]
    for problem in wanted:
        name = re.sub(r"[^a-z0-9-]+", "-", problem.id.lower()).strip("-") or "task"
        place = folder / name
        (place / "environment").mkdir(parents=True, exist_ok=True)
        (place / "tests").mkdir(exist_ok=True)
        instruction = f"{ASKS['write']} The task is /app/task.py. {RULES.split(' Answer with')[0]} Write the program to /app/program.py."
        (place / "instruction.md").write_text(instruction + "\n")
        (place / "task.toml").write_text(HARBOR_TOML.format(name=name))
        (place / "environment" / "Dockerfile").write_text(HARBOR_DOCKERFILE)
        (place / "environment" / "task.py").write_text(problem.task)
        (place / "tests" / "task.py").write_text(problem.task)
        (place / "tests" / "ask.py").write_text(HARBOR_ASK)
        (place / "tests" / "test.sh").write_text(HARBOR_TEST)
        (place / "tests" / "test.sh").chmod(0o755)
    return len(wanted)
