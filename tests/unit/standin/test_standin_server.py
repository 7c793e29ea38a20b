"""The server as the product's own clients see it."""

from collections import Counter

import httpx
import pytest

from agents.llm.errors import ModelFailure
from agents.llm.messages import Request
from agents.llm.models import Models
from tests.standin import TRANSPORT, FaultPlan, StandIn
from tests.unit.standin.prompts_of import messages

TEXT = "A reply of some length. " * 100
PROFILES = """
[profiles.openai]
kind = "openai"
base_url = "{url}"
model = "stand-in"
limits = {{ read_seconds = 0.5, retries = {retries} }}

[profiles.anthropic]
kind = "anthropic"
base_url = "{url}"
model = "stand-in"
limits = {{ read_seconds = 0.5, retries = {retries} }}
"""


class SaysTheSame:
    async def answer(self, asked, fault):
        return TEXT

    async def close(self):
        pass


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr("agents.llm.server.FIRST_WAIT", 0.01)


def models(server, folder, retries=3):
    path = folder / "llm.toml"
    path.write_text(PROFILES.format(url=server.base_url, retries=retries))
    return Models({"STITCHWORK_LLM_PROFILES": str(path), "DATA_DIR": str(folder)})


async def ask(known, profile="openai"):
    pieces = []

    async def take(delta):
        pieces.append(delta.text)

    request = Request(messages=messages("planner/plan"), purpose="planner/plan")
    return await known.ask(profile, request, key="plan#1", run="r", on_delta=take), pieces


@pytest.mark.asyncio
@pytest.mark.parametrize("profile", ["openai", "anthropic"])
async def test_a_reply_is_streamed_with_reasoning_and_usage(tmp_path, profile):
    async with StandIn(author=SaysTheSame()) as server:
        reply, pieces = await ask(models(server, tmp_path), profile)
    assert reply.text == TEXT and reply.finish == "stop" and reply.model == "stand-in" and reply.attempts == 1
    assert reply.reasoning == "This is planner/plan." and len(pieces) > 3
    assert reply.usage.input_tokens > 500 and reply.usage.output_tokens > len(TEXT) // 5
    assert [entry["role"] for entry in server.record] == ["planner"]


@pytest.mark.slow
@pytest.mark.asyncio
@pytest.mark.parametrize("kind", TRANSPORT)
async def test_each_fault_of_the_transport_is_gone_when_the_client_asks_again(tmp_path, kind):
    async with StandIn(FaultPlan(rate=3.0, kinds=(kind,)), author=SaysTheSame(), hang=5) as server:
        reply, _ = await ask(models(server, tmp_path))
    assert reply.text == TEXT and reply.attempts == 2
    assert [entry["fault"] for entry in server.record] == [kind, ""]


@pytest.mark.asyncio
async def test_without_retries_each_fault_is_a_failure_with_a_name(tmp_path):
    kinds = Counter()
    for kind in TRANSPORT:
        async with StandIn(FaultPlan(rate=3.0, kinds=(kind,)), author=SaysTheSame(), hang=5) as server:
            with pytest.raises(ModelFailure) as failure:
                await ask(models(server, tmp_path, retries=0))
        kinds[failure.value.kind] += 1
    assert kinds == {"unreachable": 4, "busy": 1}


@pytest.mark.asyncio
async def test_what_a_server_refuses_it_refuses_by_the_protocol():
    async with StandIn(author=SaysTheSame(), key="secret") as server, httpx.AsyncClient(trust_env=False) as client:
        body = {"model": "m", "messages": [{"role": "user", "content": "What is the capital of France?"}]}
        keyed = {"Authorization": "Bearer secret"}
        statuses = [
            (await client.post(f"{server.base_url}/chat/completions", json=body)).status_code,
            (await client.post(f"{server.base_url}/chat/completions", json=body, headers=keyed)).status_code,
            (await client.post(f"{server.base_url}/chat/completions", content=b"{", headers=keyed)).status_code,
            (await client.post(f"{server.base_url}/messages", json=body, headers={"x-api-key": "secret"})).status_code,
            (await client.get(f"{server.base_url}/elsewhere")).status_code,
            (await client.get(f"{server.base_url}/models")).status_code,
        ]
    assert statuses == [401, 400, 400, 400, 404, 200]


@pytest.mark.asyncio
@pytest.mark.parametrize("route", ["chat/completions", "messages"])
async def test_without_a_stream_the_reply_is_one_object(route):
    said = [message.model_dump() for message in messages("planner/plan") if message.role == "user"]
    async with StandIn(author=SaysTheSame()) as server, httpx.AsyncClient(trust_env=False) as client:
        answer = (await client.post(f"{server.base_url}/{route}", json={"model": "m", "max_tokens": 100, "messages": said})).json()
    text = answer["choices"][0]["message"]["content"] if "choices" in answer else answer["content"][-1]["text"]
    assert TEXT.startswith(text) and len(text) < 500
    assert "length" in str(answer) or "max_tokens" in str(answer)


@pytest.mark.asyncio
async def test_a_defect_of_the_stand_in_is_an_answer_too(tmp_path, caplog):
    class Breaks(SaysTheSame):
        async def answer(self, asked, fault):
            raise ZeroDivisionError("for the test")

    async with StandIn(author=Breaks()) as server:
        with pytest.raises(ModelFailure):
            await ask(models(server, tmp_path, retries=0))
    assert "cannot answer this" in caplog.text
