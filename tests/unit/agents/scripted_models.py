"""A model port that answers according to a request's purpose, from a script: lists of replies, the last of which is repeated."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable

from agents.llm.messages import Delta, Reply, Request, Usage

Answer = str | Callable[[Request], str]


class ScriptedModels:
    def __init__(self, script: dict[str, list[Answer]], model: str = "scripted-1"):
        self.model = model
        self.script = {purpose: list(answers) for purpose, answers in script.items()}
        self.requests: list[Request] = []
        self.before = None  # async callable(request)

    @property
    def purposes(self) -> list[str]:
        return [request.purpose for request in self.requests]

    def of(self, purpose: str) -> list[Request]:
        return [request for request in self.requests if request.purpose == purpose]

    def known(self, profile: str) -> bool:
        return profile == "scripted"

    def estimate(self, profile: str, request: Request) -> dict[str, float]:
        return {"calls": 1, "tokens": 1000}

    async def ask(self, profile: str, request: Request, *, key: str, run: str, on_delta) -> Reply:
        self.requests.append(request)
        if self.before is not None:
            await self.before(request)
        answers = self.script[request.purpose]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        text = answer(request) if callable(answer) else answer
        await on_delta(Delta(text=text))
        await asyncio.sleep(0)
        return Reply(text=text, model=self.model, usage=Usage(input_tokens=10, output_tokens=5))


def plan(*steps: str, **more) -> str:
    known = {"operators": ["softmax"], "space": "own kernel", "strategies": ["fuse-row-reduction"]}
    entries = [{"id": name, "title": f"do {name}", **known} for name in steps]
    return json.dumps({"summary": f"{len(steps)} steps", "steps": entries, **more})


def source(speed: float = 1.5, status: str = "passed", message: str = "", tag: str = "") -> str:
    """Returns a program that receives this verdict from the fake verifier; `tag` makes it different from others."""
    lines = [f"# speed {speed}", f"# status {status}"] + ([f"# message {message}"] if message else [])
    return "\n".join(lines) + f"\nimport torch\n\nTAG = {tag!r}\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x\n"


def program(speed: float = 1.5, status: str = "passed", message: str = "", tag: str = "", title: str = "A program") -> str:
    return f"TITLE: {title}\nCHANGES: something\nSTRATEGY: none\n\n```python\n{source(speed, status, message, tag)}```\n"


def diagnosis(route: str, method: str | None = None, documents: list[str] | None = None) -> str:
    said = {"bottleneck": "Memory sets the pace at 40 %.", "route": route, "method": method, "change": "wider loads", "expected": 1.2}
    return f"```json\n{json.dumps({**said, 'documents': documents or []})}\n```"


def offered(request: Request) -> list[str]:
    """Returns the methods that a prompt allows."""
    return re.findall(r"^- `([\w-]+)`", request.messages[1].content.partition("## Methods")[2].partition("\n## ")[0], re.MULTILINE)


def optimise(request: Request) -> str:
    """Chooses the first allowed method."""
    return diagnosis("optimise", offered(request)[0])


def judgement(route: str = "repair") -> str:
    return json.dumps({"defect": "The tail is read beyond the end.", "why": "so values differ", "fix": "mask it", "route": route, "documents": []})
