"""Offers the verifier and the agents as tools for a coding agent, through the Model Context Protocol."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from stitchwork import __version__
from stitchwork.api import ApiError
from stitchwork.asking import AsyncApi
from stitchwork.choices import DEFAULT, Search
from stitchwork.digest import report_text, run_text
from stitchwork.figures import ago, interval
from stitchwork.terminal import clean
from stitchwork.verdict import headline, verdict_text

INSTRUCTIONS = """Stitchwork measures whether a program (`class ModelNew`, with CUDA, Triton or C++ kernels) computes what a PyTorch task computes
(`class Model`, `get_inputs()`, `get_init_inputs()`, as in KernelBench), how much faster it is on a real device, and whether it is honest. Work like
this: list_devices once; then edit the program and call verify_program with tier "quick" until it passes and is fast; then once with tier "full": that
is the result. A speedup counts only by the lower bound of its interval. Do not tune to the checks: programs that detect them are rejected."""
POLL_SECONDS = 1.0
MOST_WAIT = 600
LONGEST_SOURCE = 512 * 1024
MOST_CHARACTERS = 60_000

Connect = Callable[[Context], AsyncApi]

Precision = Literal["fp32-strict", "tf32", "bf16", "fp16"]
Task = Annotated[str, Field(description="The task: Python source, the id of a task on the server, or (local server only) the path of a .py file.")]
Program = Annotated[str, Field(description="The program: Python source with `class ModelNew`, or (local server only) the path of a .py file.")]
Device = Annotated[str, Field(description='"cpu", "cuda" (any GPU) or one such as "cuda:0"; list_devices lists the devices.')]
Wait = Annotated[int, Field(ge=0, le=MOST_WAIT, description="Seconds to wait for the verdict; after that, call verification_result.")]
Run = Annotated[str, Field(description="Id of a run or verification.")]


def build_server(connect: Connect, *, local: bool) -> MCPServer:
    """Builds the server. `connect` returns the connection for a call. `local`: the server runs on the user's own machine and may read the files that
    the user names."""
    server = MCPServer("stitchwork", title="Stitchwork", version=__version__, instructions=INSTRUCTIONS, log_level="WARNING")
    tools = Tools(connect, local)
    for tool in (
        tools.verify_program,
        tools.verification_result,
        tools.explain_report,
        tools.list_devices,
        tools.submit_task,
        tools.run_status,
        tools.best_program,
        tools.list_runs,
        tools.cancel_run,
    ):
        server.add_tool(tool, structured_output=False)
    return server


class Tools:
    def __init__(self, connect: Connect, local: bool):
        self._connect, self._local = connect, local

    async def verify_program(
        self,
        task: Task,
        program: Program,
        ctx: Context,
        device: Device = "cpu",
        tier: Annotated[
            Literal["quick", "full"], Field(description="quick: against eager, for iterating; full: every baseline, the result.")
        ] = "quick",
        precision: Precision = "fp32-strict",
        wait_seconds: Wait = 50,
    ) -> str:
        """Verify a program: is it correct, faster than PyTorch, and honest? Returns the verdict, the problems with their source lines, times with
        intervals, and what to do next."""
        body = self._task(task) | {"program_source": self._source(program, "program"), "device": device, "tier": tier, "precision": precision}
        async with self._api(ctx) as api:
            result = await _asked(api.post("/verifications", body))
            return await self._verdict(api, result, wait_seconds, ctx)

    async def verification_result(self, run: Run, ctx: Context, wait_seconds: Wait = 50) -> str:
        """Return the verdict of a verification that was started earlier, or its progress."""
        async with self._api(ctx) as api:
            result = await _asked(api.get(f"/verifications/{_id(run)}"))
            return await self._verdict(api, result, wait_seconds, ctx)

    async def explain_report(
        self, run: Run, ctx: Context, candidate: Annotated[int | None, Field(description="Number of a candidate; default: the best.")] = None
    ) -> str:
        """Return the evidence behind a verdict: times against each baseline, kernels by time, resources, correctness, findings with lines."""
        async with self._api(ctx) as api:
            number = candidate or (await _asked(api.get(f"/runs/{_id(run)}")))["best_candidate"] or 1
            return report_text(await _asked(api.get(f"/runs/{_id(run)}/candidates/{number}/report")))

    async def list_devices(self, ctx: Context) -> str:
        """List the devices on which programs can be measured, with their queues, and the models that runs can use."""
        async with self._api(ctx) as api:
            answer = await _asked(api.get("/devices"))
        kinds = [f"{k['kind']}: {k['online']} online, {k['waiting']} waiting" for k in answer["kinds"] if k["usable"]]
        devices = [f"  {d['device']}: {clean(d['name'])}, {'online' if d['online'] else 'offline'}{_facts(d)}" for d in answer["devices"]]
        models = ", ".join(m["name"] for m in answer["models"]) or "none (the built-in compiler needs none)"
        return "\n".join([*kinds, *devices, f"models: {clean(models)}"])

    async def submit_task(
        self,
        task: Task,
        ctx: Context,
        device: Device = "cpu",
        workflow: Search = DEFAULT,
        llm: Annotated[str, Field(description='A model that list_devices names, or "built-in" (a compiler: free, deterministic).')] = "built-in",
        candidates: Annotated[int, Field(ge=1, le=1000, description="Maximum number of programs to try.")] = 8,
        minutes: Annotated[float, Field(gt=0, le=1440)] = 30,
        precision: Precision = "fp32-strict",
        title: str = "",
    ) -> str:
        """Have Stitchwork's own agents search for a faster program for a task. Returns immediately; run_status reports the progress."""
        settings = {"device": device, "workflow": workflow, "planner": llm, "coder": llm, "judge": llm, "precision": precision}
        budget = {"candidates": candidates, "seconds": minutes * 60}
        async with self._api(ctx) as api:
            run = await _asked(api.post("/runs", self._task(task) | {"title": title, "settings": settings | {"budget": budget}}))
        return run_text(run, [])

    async def run_status(self, run: Run, ctx: Context) -> str:
        """Return the progress of a run: candidates with verdicts and speedups, outcome and reason."""
        async with self._api(ctx) as api:
            detail = await _asked(api.get(f"/runs/{_id(run)}"))
            return run_text(detail, (await _asked(api.get(f"/runs/{_id(run)}/candidates")))["candidates"])

    async def best_program(self, run: Run, ctx: Context) -> str:
        """Return the source of a run's best program that passed."""
        async with self._api(ctx) as api:
            source = str(await _asked(api.text(f"/runs/{_id(run)}/best")))
        if len(source) > MOST_CHARACTERS:
            raise ToolError(f"the program has {len(source):,} characters, too many for a reply: `stitchwork fetch {run}` writes it to a file")
        return source

    async def list_runs(self, ctx: Context, words: Annotated[str, Field(description="Words of the title or the task; empty: all runs.")] = "") -> str:
        """List the team's latest runs."""
        async with self._api(ctx) as api:
            rows = (await _asked(api.get("/runs", q=words, limit=20)))["runs"]
        told = [
            f"{r['id']} {clean(r['title'])[:50]}: {r['outcome'] or r['state']}, {interval(r['speedup'])} vs eager, {r['device']},"
            f" {ago(r['created_at'])}"
            for r in rows
        ]
        return "\n".join(told) or "no runs"

    async def cancel_run(self, run: Run, ctx: Context) -> str:
        """End a run or a verification that has not finished."""
        async with self._api(ctx) as api:
            await _asked(api.post(f"/runs/{_id(run)}/control", {"action": "cancel"}))
        return "requested: the run ends at its next step"

    def _api(self, ctx: Context) -> AsyncApi:
        return self._connect(ctx)

    async def _verdict(self, api: AsyncApi, result: dict[str, Any], wait: int, ctx: Context) -> str:
        deadline = time.monotonic() + wait
        said = ""
        while not result["done"] and time.monotonic() < deadline:
            if headline(result) != said:
                said = headline(result)
                await ctx.report_progress(wait - (deadline - time.monotonic()), wait, said)
            await asyncio.sleep(POLL_SECONDS)
            result = await _asked(api.get(f"/verifications/{result['id']}"))
        if result["done"]:
            return f"verification {result['id']}\n{verdict_text(result)}"
        return f"verification {result['id']}: {headline(result)}\nnext: call verification_result with this id.\npage: {result['page']}"

    def _task(self, text: str) -> dict[str, str]:
        return {"task": text} if _is_uuid(text) else {"task_source": self._source(text, "task")}

    def _source(self, text: str, what: str) -> str:
        if "\n" in text.strip():
            return text
        if not self._local or not text.endswith(".py"):
            raise ToolError(f"the {what} is not Python source: send the source itself{', or the path of a .py file' if self._local else ''}")
        path = Path(text).expanduser()
        try:
            if path.stat().st_size > LONGEST_SOURCE:
                raise ToolError(f"{path} has more than 512 KiB: a {what} is one Python module without data in it")
            return path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise ToolError(f"{path} cannot be read: {error}; relative paths are those of the directory {Path.cwd()}") from None


async def _asked(call: Any) -> Any:
    """Awaits the call, and passes the API's errors to the model unchanged: what failed, where, and what to do."""
    try:
        return await call
    except ApiError as error:
        raise ToolError(str(error)) from None


def _facts(device: dict[str, Any]) -> str:
    facts = ", ".join(f"{name} {value}" for name, value in device["facts"].items() if name in ("Memory", "Bandwidth", "CUDA", "PyTorch", "Compiler"))
    unusable = f"; cannot be used: {clean(device['unusable_because'])[:200]}" if not device["usable"] else ""
    return f" ({clean(facts)}){unusable}" if facts else unusable


def _id(text: str) -> str:
    if not _is_uuid(text):
        raise ToolError(f"{text!r} is not the id of a run; list_runs lists them")
    return text


def _is_uuid(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text.lower()
    except ValueError:
        return False
