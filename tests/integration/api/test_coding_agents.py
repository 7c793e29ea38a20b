"""The tools for coding agents, called through the protocol's own client: over stdio, and at /mcp on a real Daphne."""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager

import httpx2
import pytest
from asgiref.sync import sync_to_async
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from tests.browser import sample_run
from tests.unit.webapp.api.verified import finish
from tests.unit.webapp.cast import PROGRAM, SOURCE
from webapp.environment import ROOT
from webapp.fleet.models import Device
from webapp.runs.models import Run

pytestmark = [pytest.mark.asyncio, pytest.mark.django_db(transaction=True)]
TOOLS = {
    "verify_program",
    "verification_result",
    "explain_report",
    "list_devices",
    "submit_task",
    "run_status",
    "best_program",
    "list_runs",
    "cancel_run",
}


@pytest.fixture
def over_http(server, token):
    @asynccontextmanager
    async def connect(authorization: str = f"Bearer {token}"):
        headers = {"Authorization": authorization} if authorization else {}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=60) as http,
            Client(streamable_http_client(f"{server}/mcp", http_client=http)) as client,
        ):
            yield client

    return connect


@pytest.fixture
def over_stdio(environment, tmp_path):
    (tmp_path / "task.py").write_text(SOURCE)
    (tmp_path / "mine.py").write_text(PROGRAM)

    @asynccontextmanager
    async def connect():
        named = StdioServerParameters(
            command=sys.executable, args=["-m", "stitchwork", "mcp"], env=environment | {"PYTHONPATH": str(ROOT)}, cwd=tmp_path
        )
        async with Client(named) as client:
            yield client

    return connect


async def told(client: Client, tool: str, **arguments) -> str:
    result = await client.call_tool(tool, arguments)
    text = "\n".join(part.text for part in result.content)
    assert not result.is_error, text
    assert len(text) < 8000  # a model's context is limited
    return text


async def refused(client: Client, tool: str, **arguments) -> str:
    result = await client.call_tool(tool, arguments)
    assert result.is_error
    return result.content[0].text


@sync_to_async
def judge_next(**of) -> None:
    finish(Run.objects.get(state="queued", workflow="verify"), **of)


async def judged(client: Client, task: str, program: str, **of) -> str:
    """Calls `verify_program`; the given verdict arrives while the tool is waiting."""
    asked = asyncio.create_task(told(client, "verify_program", task=task, program=program, wait_seconds=60))
    while not await sync_to_async(Run.objects.filter(state="queued", workflow="verify").exists)():
        assert not asked.done(), asked.result()
        await asyncio.sleep(0.05)
    await judge_next(**of)
    return await asked


@pytest.mark.slow
async def test_a_program_is_verified_from_files_over_stdio(over_stdio):
    async with over_stdio() as client:
        listed = (await client.list_tools()).tools
        assert {tool.name for tool in listed} == TOOLS and all(tool.description and len(tool.description) < 400 for tool in listed)
        text = await judged(client, "task.py", "mine.py")
        assert "passed: 2." in text and "vs eager on AMD EPYC" in text and "next: It is correct and faster." in text
        text = await judged(client, "task.py", PROGRAM + "# again\n", status="wrong_result")
        assert "wrong result" in text and "failed trials:" in text and "error 0.83, bound 1.5e-06" in text and "next: Read `failed_trials`" in text
        assert "cannot be read" in await refused(client, "verify_program", task="nothing.py", program="mine.py")
        assert "line 2: syntax error" in await refused(client, "verify_program", task=SOURCE, program="import torch\nx = (\n")


async def test_every_tool_answers_over_http(over_http, people):
    @sync_to_async
    def story() -> str:
        Device.objects.create(worker="w", kind="cpu", device="cpu", name="Example CPU", model="cpu", queue="verify.cpu")
        run = sample_run.create_run(people.alice)
        sample_run.play(run)
        return str(run.pk)

    run = await story()
    async with over_http() as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == TOOLS
        assert "cpu: Example CPU, online" in await told(client, "list_devices")
        assert f"{run} softmax_rows: improved, 2.39x [2.35, 2.42] vs eager" in await told(client, "list_runs", words="softmax")
        status = await told(client, "run_status", run=run)
        assert "best: candidate 4, 2.39x [2.35, 2.42] vs eager" in status and "1: wrong result" in status and "/runs/" in status
        assert "class ModelNew" in await told(client, "best_program", run=run)
        evidence = await told(client, "explain_report", run=run)
        assert "time of a call:" in evidence and "softmax_rows" in evidence and "line 31:" in evidence and "correctness: 7 of 7" in evidence
        text = await judged(client, SOURCE, PROGRAM)
        assert "passed: 2." in text
        waiting = await told(client, "verify_program", task=SOURCE, program=PROGRAM + "# later\n", wait_seconds=0)
        identity = waiting.split()[1].rstrip(":")
        assert "next: call verification_result" in waiting
        await judge_next()
        assert "passed" in await told(client, "verification_result", run=identity)
        submitted = await told(client, "submit_task", task=SOURCE, candidates=2, title="from an agent")
        assert "state: queued" in submitted
        assert "requested" in await told(client, "cancel_run", run=submitted.split()[1].rstrip(":"))
        assert "not Python source" in await refused(
            client, "verify_program", task="/etc/passwd.py", program=PROGRAM
        )  # the files are on the agent's host
        assert "not the id of a run" in await refused(client, "run_status", run="softmax")


async def test_a_scope_that_is_lacking_is_told_to_the_model(over_http, people):
    from webapp.accounts import tokens

    text = (await sync_to_async(tokens.issue)(people.alice, people.alice.personal_team, "t", ["read"]))[1]
    async with over_http(f"Bearer {text}") as client:
        assert "lacks the scope verify" in await refused(client, "verify_program", task=SOURCE, program=PROGRAM)


async def test_nobody_gets_in_without_a_token(server):
    async with httpx2.AsyncClient() as http:
        for headers in ({}, {"Authorization": "Bearer sw_wrong"}):
            answer = await http.post(f"{server}/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, headers=headers)
            assert answer.status_code == 401 and "Bearer" in answer.headers["www-authenticate"]
