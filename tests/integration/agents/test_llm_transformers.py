"""Tests the client against a third-party server: `transformers serve` with a tiny, randomly initialised model created for the test."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from agents.journal import read_trace
from agents.llm import Models
from agents.llm.check import try_profile
from agents.llm.errors import ModelFailure
from agents.llm.messages import Delta, Message, Request
from agents.projection import project

pytest.importorskip("transformers", reason="transformers[serving] of requirements-dev.txt is not installed: no real server to test against")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.xdist_group("transformers serve")]

ROOT = Path(__file__).resolve().parents[3]
STARTS_WITHIN = 300  # seconds; the server imports torch and transformers, possibly on a busy machine
# A separate process creates the model, so that the other tests are spared the time and memory that importing transformers costs.
MAKE_MODEL = """
import sys, torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
folder = sys.argv[1]
vocabulary = {piece: i for i, piece in enumerate(["<|end|>", *sorted(pre_tokenizers.ByteLevel.alphabet())])}  # a token a byte
tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>", pad_token="<|end|>")
fast.chat_template = "{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }}\\n{% endfor %}[assistant] "
fast.save_pretrained(folder)
torch.manual_seed(0)
size = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=65536)
LlamaForCausalLM(LlamaConfig(vocab_size=len(vocabulary), **size, bos_token_id=0, eos_token_id=0, pad_token_id=0)).save_pretrained(folder)
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """Returns the base URL and the model of a running server."""
    folder = tmp_path_factory.mktemp("tiny-llama")
    quiet = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(folder), "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", MAKE_MODEL, str(folder)], env=quiet, check=True, capture_output=True, timeout=STARTS_WITHIN)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = folder / "serve.log"
    command = [Path(sys.executable).with_name("transformers"), "serve", folder, "--device", "cpu", "--host", "127.0.0.1", "--port", str(port)]
    with log.open("wb") as output:
        process = subprocess.Popen(list(map(str, command)), env=quiet, stdout=output, stderr=output)
    try:
        wait_until_healthy(port, process, log)
        yield f"http://127.0.0.1:{port}/v1", str(folder)
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_until_healthy(port: int, process: subprocess.Popen, log: Path) -> None:
    until = time.monotonic() + STARTS_WITHIN
    while time.monotonic() < until and process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2):
                return
        except OSError:
            time.sleep(0.2)
    pytest.fail(f"transformers serve did not start:\n{log.read_text()[-4000:]}")


@pytest.fixture
def models(served, tmp_path):
    url, model = served
    (tmp_path / "llm.toml").write_text(f'[profiles.tiny]\nkind = "openai"\nbase_url = "{url}"\nmodel = "{model}"\ntemperature = 1.0\n')
    return Models({"DATA_DIR": str(tmp_path)})


def asked(tokens: int) -> Request:
    said = [Message(role="system", content="You are brief."), Message(role="user", content="Schreibe Grüße.")]
    return Request(messages=said, max_tokens=tokens)


async def collect(models: Models, tokens: int):
    deltas: list[Delta] = []

    async def on_delta(delta: Delta) -> None:
        deltas.append(delta)

    return await models.ask("tiny", asked(tokens), key="a#1", run="r", on_delta=on_delta), deltas


@pytest.mark.asyncio
async def test_a_reply_streams_with_usage(models):
    reply, deltas = await collect(models, 60)
    assert len(deltas) > 1 and "".join(d.text for d in deltas) == reply.text and reply.attempts == 1
    assert reply.finish in ("length", "stop") and reply.usage.input_tokens > 30 and 0 < reply.usage.output_tokens <= 60
    assert reply.usage.input_tokens <= models.estimate("tiny", asked(60))["tokens"] * 3  # one token per byte, the worst case for the estimate
    assert "tiny-llama" in reply.model


@pytest.mark.asyncio
async def test_the_check_of_a_profile(models):
    trial = await try_profile(models, "tiny")
    assert trial.streamed and trial.usage is not None and trial.seconds > 0 and (trial.ok or trial.failure.kind == "protocol")


@pytest.mark.asyncio
async def test_a_cancelled_stream_leaves_the_server_working(models):
    begun = asyncio.Event()

    async def on_delta(_: Delta) -> None:
        begun.set()

    asking = asyncio.create_task(models.ask("tiny", asked(3000), key="a#1", run="r", on_delta=on_delta))
    await asyncio.wait_for(begun.wait(), 60)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    reply, _ = await collect(models, 5)
    assert reply.usage.output_tokens <= 5


@pytest.mark.asyncio
async def test_a_model_that_it_does_not_serve(served, tmp_path):
    (tmp_path / "llm.toml").write_text(f'[profiles.tiny]\nkind = "openai"\nbase_url = "{served[0]}"\nmodel = "another"\n')
    with pytest.raises(ModelFailure) as failure:
        await collect(Models({"DATA_DIR": str(tmp_path)}), 5)
    assert failure.value.kind == "refused" and "another" in failure.value.message


def test_a_whole_run_ends_in_a_named_state(served, tmp_path):
    """Random words are neither a plan nor a program. Each reply is requested again and then skipped, until the allowed calls are used up."""
    url, model = served
    profile = f'[profiles.tiny]\nkind = "openai"\nbase_url = "{url}"\nmodel = "{model}"\nmax_tokens = 32\nprices = {{ input = 1.0, output = 2.0 }}\n'
    (tmp_path / "llm.toml").write_text(profile)
    out = tmp_path / "run"
    command = [sys.executable, "-m", "agents", "solve", "examples/softmax.py", "--out", str(out), "--llm", "tiny", "--budget-calls", "4"]
    environment = {**os.environ, "DATA_DIR": str(tmp_path)}
    done = subprocess.run([*command, "--data-dir", str(tmp_path / "v")], env=environment, cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert done.returncode == 3, done.stderr[-3000:]
    events, _ = read_trace(out)
    summary = project(events)
    replies = [e.payload for e in events if e.kind == "llm.completed"]
    assert summary.outcome == "out_of_budget" and summary.spent["calls"] == len(replies) == 4
    assert {e.payload["job"] for e in events if e.kind == "verification.finished"} >= {"admit", "capture"}
    assert summary.spent["tokens"] == sum(r["usage"]["input_tokens"] + r["usage"]["output_tokens"] for r in replies) > 4000
    assert summary.spent["dollars"] == pytest.approx(sum(r["dollars"] for r in replies), abs=1e-5) and summary.spent["dollars"] > 0
