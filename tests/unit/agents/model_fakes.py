"""A model that answers from the request alone, and roles that query it, for testing what the engine does with exchanges."""

from __future__ import annotations

import asyncio
import hashlib

from agents.diagnosis import diagnose
from agents.llm.errors import ModelFailure
from agents.llm.messages import Delta, Message, Reply, Request, Usage
from agents.roles.situation import Advice, Edit, Plan, Roles
from tests.unit.agents.agent_fakes import CEILINGS

ESTIMATE = {"calls": 1, "tokens": 1000, "dollars": 0.01}


class FakeModels:
    """Writes programs whose speed depends on the prompt; about one prompt in three is answered without a program."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []  # (key, last message) of every request that was sent
        self.failures: list[ModelFailure] = []  # raised for the next requests
        self.before = None  # async callable(key, on_delta) that delays a request
        self.reasoning = ""
        self.usage: Usage | None = Usage(input_tokens=100, output_tokens=50)

    def known(self, profile: str) -> bool:
        return profile == "fake"

    def estimate(self, profile: str, request: Request) -> dict[str, float]:
        return dict(ESTIMATE)

    async def ask(self, profile: str, request: Request, *, key: str, run: str, on_delta) -> Reply:
        self.asked.append((key, request.messages[-1].content))
        if self.failures:
            raise self.failures.pop(0)
        text = answer(request)
        for start in range(0, len(text), 7):
            await on_delta(Delta(text=text[start : start + 7]))
        if self.before is not None:
            await self.before(key, on_delta)
        await asyncio.sleep(0)
        if self.reasoning:
            await on_delta(Delta(kind="reasoning", text=self.reasoning))
        return Reply(text=text, reasoning=self.reasoning, model="fake-1", usage=self.usage, dollars=0.001)


def answer(request: Request) -> str:
    digest = hashlib.sha256(request.model_dump_json().encode()).digest()
    if request.purpose.startswith("coder/"):
        if digest[0] % 3 == 0 and request.purpose != "coder/again":
            return "I would rather not."
        return f"# speed {1 + digest[1] / 128:.3f}\n# from {digest.hex()}"
    return f"{request.purpose}: {digest.hex()}"


def asking(purpose: str, text: str) -> Request:
    return Request(messages=[Message(role="user", content=text)], purpose=purpose)


class AskingRoles:
    """Roles that each query the model; the Verifier ends the search after this number of programs."""

    name = "fake"

    def __init__(self, programs: int = 4):
        self.programs = programs

    def roles(self) -> Roles:
        return Roles(self, self, self)

    async def plan(self, span, situation) -> Plan:
        text = (await span.ask("planner", "fake", asking("planner/plan", situation.task_source))).text
        payload = {"summary": text, "steps": [{"id": "g1", "title": "softmax", "space": "own kernel"}]}
        return Plan(payload, (text,), floor_ms=0.5, bytes_min=10**7, flops=10**6)

    async def write(self, span, situation, parent, advice):
        prompt = f"{situation.plan.payload} {parent.edit.source if parent else ''} {advice.reason if advice else ''}"
        reply = await span.ask("coder", "fake", asking("coder/write", prompt))
        if not reply.text.startswith("# speed"):
            reply = await span.ask("coder", "fake", asking("coder/again", prompt + reply.text))
        return Edit(reply.text, f"program {len(situation.attempts) + 1}", "changed", ("wrote it",), "vectorise", "g1")

    def knobs(self, situation, attempt):
        return []

    async def advise(self, span, situation, attempt) -> Advice:
        said = (await span.ask("verifier", "fake", asking("verifier/advise", attempt.edit.source))).text
        plan = situation.plan
        found = diagnose(attempt.report, attempt.profile, CEILINGS, bytes_min=plan.bytes_min, flops=plan.flops, floor_ms=plan.floor_ms)
        return Advice(found, "stop" if attempt.number >= self.programs else "optimise", said, "vectorise", 1.3)
