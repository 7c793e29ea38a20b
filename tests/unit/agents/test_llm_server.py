"""The client against a real server: valid replies in every form, and everything that can go wrong in transit."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket

import pytest
from llm_profiles import KEY, Heard, ask, models, profile, request
from llm_server import DONE, HEAD, chunk, event, hang, raw, reply, serving, stream, usage, words

from agents.llm import call, server
from agents.llm.errors import ModelFailure
from agents.llm.messages import Usage


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """Retries without waiting, and records the waits."""
    waits: list[float] = []
    real = asyncio.sleep

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        await real(0)

    monkeypatch.setattr(server, "sleep", sleep)
    monkeypatch.setattr(call, "LINGER", 0.2)
    return waits


async def failing(found, **more) -> ModelFailure:
    with pytest.raises(ModelFailure) as failure:
        await ask(found, **more)
    error = failure.value
    assert error.message.startswith("profile fast: ") and KEY not in f"{error} {error!r} {error.__cause__!r} {error.__context__!r}"
    return error


# Replies


@pytest.mark.asyncio
async def test_a_streamed_reply(tmp_path):
    async with serving(words("Hello there", 1000, 500)) as wire:
        found = models(tmp_path, profile(base_url=wire.url, prices={"input": 1.0, "output": 4.0}))
        heard = Heard()
        got = await ask(found, heard)
    assert (got.text, got.finish, got.model, got.attempts) == ("Hello there", "stop", "tiny-1", 1)
    assert got.usage == Usage(input_tokens=1000, output_tokens=500) and got.dollars == pytest.approx(0.003)
    assert [d.text for d in heard.deltas] == ["Hello ", "there"]
    assert wire.asked[0].path == "/v1/chat/completions" and wire.asked[0].headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.asyncio
async def test_anthropic_on_the_wire(tmp_path):
    events = [
        event({"type": "message_start", "message": {"model": "c-1", "usage": {"input_tokens": 7}}}, "message_start"),
        event({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "Yes"}}, "content_block_delta"),
        event({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}}, "message_delta"),
        event({"type": "message_stop"}, "message_stop"),
    ]
    async with serving(stream(*events)) as wire:
        got = await ask(models(tmp_path, profile(kind="anthropic", base_url=wire.url)))
    assert (got.text, got.finish, got.usage) == ("Yes", "stop", Usage(input_tokens=7, output_tokens=3))
    assert wire.asked[0].path == "/v1/messages" and wire.asked[0].headers["x-api-key"] == KEY
    assert wire.asked[0].body["system"][0]["text"] == "You are brief."


@pytest.mark.asyncio
async def test_without_a_key_no_header_is_sent(tmp_path):
    async with serving(words()) as wire:
        await ask(models(tmp_path, f'[profiles.fast]\nkind = "openai"\nmodel = "m"\nbase_url = "{wire.url}"\n'))
    assert "authorization" not in wire.asked[0].headers


@pytest.mark.asyncio
@pytest.mark.parametrize("size", [1, 4])
async def test_chunks_cut_anywhere_with_comments_and_crlf(tmp_path, size):
    body = b": OPENROUTER PROCESSING\r\n\r\n" + chunk("Grüße 🎉 ").replace(b"\n", b"\r\n") + b": more\n\n" + chunk("an alle", "stop") + usage() + DONE
    async with serving(raw(HEAD, *(body[i : i + size] for i in range(0, len(body), size)))) as wire:
        heard = Heard()
        got = await ask(models(tmp_path, profile(base_url=wire.url)), heard)
    assert got.text == heard.text == "Grüße 🎉 an alle"


@pytest.mark.asyncio
async def test_chunked_and_compressed_transfer(tmp_path):
    data = gzip.compress(chunk("packed", "stop") + DONE)
    body = b"".join(f"{len(p):x}\r\n".encode() + p + b"\r\n" for p in (data[:20], data[20:])) + b"0\r\n\r\n"
    head = HEAD.replace(b"Connection: close", b"Content-Encoding: gzip\r\nTransfer-Encoding: chunked")
    async with serving(raw(head + body)) as wire:
        assert (await ask(models(tmp_path, profile(base_url=wire.url)))).text == "packed"


@pytest.mark.asyncio
async def test_no_done_no_usage(tmp_path):
    async with serving(stream(chunk("Yes"), chunk(finish="stop"))) as wire:
        got = await ask(models(tmp_path, profile(base_url=wire.url, prices={"input": 1.0, "output": 4.0})))
    assert got.text == "Yes" and got.usage is None and got.dollars is None


@pytest.mark.asyncio
@pytest.mark.parametrize("end", [hang, lambda *pieces: stream(*pieces, reset=True)])
async def test_what_happens_after_the_finish_does_no_harm(tmp_path, end):
    pieces = (HEAD, chunk("Yes", "stop")) if end is hang else (chunk("Yes", "stop"),)
    async with serving(end(*pieces)) as wire:
        got = await ask(models(tmp_path, profile(base_url=wire.url)))
    assert (got.text, got.attempts) == ("Yes", 1)


@pytest.mark.asyncio
async def test_usage_that_comes_late(tmp_path):
    async with serving(stream(chunk("Yes", "stop"), b": wait\n\n", usage(3, 1), DONE, pause=0.02)) as wire:
        assert (await ask(models(tmp_path, profile(base_url=wire.url)))).usage == Usage(input_tokens=3, output_tokens=1)


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", ["application/json", "text/event-stream", "text/plain"])
async def test_a_server_that_does_not_stream(tmp_path, kind):
    message = {"role": "assistant", "content": "Whole", "reasoning_content": "hm"}
    whole = {"model": "m-1", "choices": [{"message": message, "finish_reason": "stop"}], "usage": {"prompt_tokens": 2, "completion_tokens": 1}}
    async with serving(reply(whole, kind=kind)) as wire:
        heard = Heard()
        got = await ask(models(tmp_path, profile(base_url=wire.url)), heard)
    assert (got.text, got.reasoning, heard.text, heard.reasoning) == ("Whole", "hm", "Whole", "hm") and got.usage.input_tokens == 2


@pytest.mark.asyncio
async def test_a_stream_under_a_wrong_content_type(tmp_path):
    async with serving(raw(HEAD.replace(b"text/event-stream", b"application/octet-stream"), chunk("Yes"), chunk(finish="stop"), DONE)) as wire:
        assert (await ask(models(tmp_path, profile(base_url=wire.url)))).text == "Yes"


@pytest.mark.asyncio
async def test_a_field_that_the_server_does_not_take_is_left_out_from_then_on(tmp_path):
    no = {"error": {"message": "Unsupported parameter: 'max_tokens' is not supported with this model.", "param": "max_tokens"}}
    async with serving(reply(no, "400 Bad Request"), words()) as wire:
        found = models(tmp_path, profile(base_url=wire.url))
        assert (await ask(found)).attempts == 2
        assert (await ask(found)).attempts == 1
    assert [("max_tokens" in a.body, "max_completion_tokens" in a.body) for a in wire.asked] == [(True, False), (False, True), (False, True)]


@pytest.mark.asyncio
async def test_the_profile_caps_the_reply(tmp_path):
    async with serving(words()) as wire:
        await ask(models(tmp_path, profile(base_url=wire.url, max_tokens=20, body={"seed": 3})))
    assert wire.asked[0].body["max_tokens"] == 20 and wire.asked[0].body["seed"] == 3


# Faults that are retried


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "fault",
    [
        stream(chunk("Hel")),
        stream(chunk("Hel"), DONE),
        stream(chunk("Hel"), reset=True),
        stream(chunk("Hel"), b"data: {\n\n"),
        stream(chunk("Hel"), event({"error": {"message": "Overloaded", "code": 529}})),
        stream(chunk("", "stop"), usage(), DONE),
        stream(b""),
        raw(b""),
        raw(b"", reset=True),
        raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"),
        raw(b"not HTTP at all\r\n\r\n"),
        reply(b""),
        reply(b'{"choices": ['),
        reply(b"<html><title>502 Bad Gateway</title></html>", "502 Bad Gateway", "text/html"),
        *(reply({"error": {"message": "later"}}, f"{status} X") for status in (408, 409, 425, 429, 500, 503, 529)),
    ],
)
async def test_a_fault_is_tried_again(tmp_path, patience, fault):
    async with serving(fault, words()) as wire:
        heard = Heard()
        got = await ask(models(tmp_path, profile(base_url=wire.url)), heard)
    assert (got.text, got.attempts, heard.text) == ("Hello there", 2, "Hello there")
    assert len(patience) == 1 and 0 <= patience[0] <= 1


@pytest.mark.asyncio
async def test_another_text_after_a_retry_is_left_to_the_reply(tmp_path):
    async with serving(stream(chunk("Hi "), chunk("you")), words()) as wire:
        heard = Heard()
        got = await ask(models(tmp_path, profile(base_url=wire.url)), heard)
    assert got.text == "Hello there" and heard.text == "Hi you"


@pytest.mark.asyncio
async def test_tokens_of_an_attempt_that_failed_are_counted(tmp_path):
    async with serving(stream(chunk("", "stop"), usage(10, 90), DONE), words("Yes now", 10, 5)) as wire:
        got = await ask(models(tmp_path, profile(base_url=wire.url)))
    assert got.usage == Usage(input_tokens=20, output_tokens=95) and got.attempts == 2


@pytest.mark.asyncio
async def test_retries_end(tmp_path, patience):
    async with serving(reply({"error": {"message": "no room"}}, "503 X")) as wire:
        error = await failing(models(tmp_path, profile(base_url=wire.url, limits={"retries": 3})))
    assert (error.kind, error.attempts, len(wire.asked)) == ("busy", 4, 4)
    assert error.message == "profile fast: HTTP 503: no room (4 requests)" and error.hint
    assert all(0 <= wait <= 2**i for i, wait in enumerate(patience))


@pytest.mark.asyncio
async def test_retry_after_is_heeded(tmp_path, patience):
    async with serving(reply(b"", "429 X", Retry_After="0.2"), words()) as wire:
        await ask(models(tmp_path, profile(base_url=wire.url)))
    assert 0.2 <= patience[0] <= 1.2


@pytest.mark.asyncio
async def test_a_server_that_asks_for_more_than_minutes_is_not_waited_for(tmp_path, patience):
    async with serving(reply(b"", "429 X", Retry_After="86400")) as wire:
        error = await failing(models(tmp_path, profile(base_url=wire.url)))
    assert error.kind == "busy" and "asks the client to wait 86400 s" in error.message and not patience


@pytest.mark.asyncio
async def test_a_hang_ends_by_the_read_timeout(tmp_path):
    async with serving(hang(HEAD, chunk("Hel")), words()) as wire:
        found = models(tmp_path, profile(base_url=wire.url, limits={"retries": 1, "read_seconds": 0.2}))
        assert (await ask(found)).attempts == 2


@pytest.mark.asyncio
async def test_a_server_that_never_answers(tmp_path):
    async with serving(hang()) as wire:
        error = await failing(models(tmp_path, profile(base_url=wire.url, limits={"retries": 0, "read_seconds": 0.1})))
    assert error.kind == "unreachable" and "silent for 0.1 s" in error.message


@pytest.mark.asyncio
async def test_a_stream_that_drips_for_ever_ends_by_the_total(tmp_path):
    drips = stream(*[b": alive\n\n"] * 200, pause=0.02)
    async with serving(drips) as wire:
        found = models(tmp_path, profile(base_url=wire.url, limits={"retries": 0, "read_seconds": 1, "total_seconds": 0.3}))
        error = await failing(found)
    assert error.kind == "unreachable" and "no complete reply within 0.3 s" in error.message


@pytest.mark.asyncio
async def test_nobody_listens(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        error = await failing(models(tmp_path, profile(base_url=f"http://127.0.0.1:{port}/v1")))
    assert error.kind == "unreachable" and error.attempts == 3 and f"no connection to 127.0.0.1:{port}" in error.message


# Faults that are not retried


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("answer", "kind", "part"),
    [
        (reply({"error": {"message": "Incorrect API key"}}, "401 X"), "refused", "Incorrect API key"),
        (reply({"error": {"message": "The model `x` does not exist"}}, "404 X"), "refused", "does not exist"),
        (reply({"error": {"message": "maximum context length is 10"}}, "400 X"), "too-long", "HTTP 400"),
        (reply(b"", "307 X", Location="https://elsewhere/v1"), "refused", "https://elsewhere/v1"),
        (reply(b"<!DOCTYPE html><title>Sign in</title>", kind="text/html"), "protocol", "'Sign in'"),
        (reply({"hello": 1}), "protocol", "no choices"),
        (reply([1]), "protocol", "a list"),
        (reply({"error": {"message": "quota", "code": "insufficient_quota"}}, "429 X"), "refused", "quota"),
    ],
)
async def test_a_fault_that_asking_again_does_not_mend(tmp_path, patience, answer, kind, part):
    async with serving(answer) as wire:
        error = await failing(models(tmp_path, profile(base_url=wire.url)))
    assert (error.kind, len(wire.asked), patience) == (kind, 1, []) and part in error.message and error.hint


@pytest.mark.asyncio
async def test_a_missing_key(tmp_path):
    async with serving(words()) as wire:
        error = await failing(models(tmp_path, profile(base_url=wire.url), PLANTED_KEY=" "))
        assert (error.kind, error.attempts) == ("configuration", 0) and "PLANTED_KEY is not set" in error.message
        error = await failing(models(tmp_path, profile(base_url=wire.url), PLANTED_KEY="sk-\nx"))
        assert error.kind == "configuration" and "sk-" not in str(error)
    assert not wire.asked


@pytest.mark.asyncio
async def test_the_key_is_read_at_the_time_of_the_call(tmp_path):
    async with serving(words()) as wire:
        found = models(tmp_path, profile(base_url=wire.url))
        await ask(found)
        found.environment["PLANTED_KEY"] = "another-key"
        await ask(found)
    assert [a.headers["authorization"] for a in wire.asked] == [f"Bearer {KEY}", "Bearer another-key"]


@pytest.mark.asyncio
async def test_a_server_that_repeats_the_key(tmp_path):
    async with serving(reply({"error": {"message": f"Incorrect API key provided: {KEY}"}}, "401 X"), words(f"You sent {KEY} to me")) as wire:
        found = models(tmp_path, profile(base_url=wire.url))
        assert "[key]" in (await failing(found)).message
        heard = Heard()
        got = await ask(found, heard)
    assert got.text == heard.text == "You sent [key] to me"


@pytest.mark.asyncio
async def test_the_context_guard_says_by_how_much(tmp_path):
    async with serving(words()) as wire:
        found = models(tmp_path, profile(base_url=wire.url, context_tokens=1000))
        error = await failing(found, asked=request("x" * 3000))
        assert error.kind == "too-long" and error.attempts == 0 and not wire.asked
        assert "about 1021 tokens of prompt and up to 100 of reply are 121 more than the 1000" in error.message
        error = await failing(found, asked=request("x", max_tokens=2000))
        assert "lower max_tokens" in error.hint
        await ask(found, asked=request("x" * 2000))


@pytest.mark.asyncio
async def test_an_unknown_profile(tmp_path):
    with pytest.raises(ModelFailure) as failure:
        await ask(models(tmp_path, profile(base_url="http://h")), name="slow")
    assert failure.value.kind == "configuration" and "no profile slow (there are: fast)" in failure.value.message


# Estimates and cancellation


def test_estimates(tmp_path):
    priced = profile(base_url="http://h", max_tokens=50, prices={"input": 1.0, "output": 10.0})
    found = models(tmp_path, priced, profile("plain", base_url="http://h"))
    asked = request("x" * 300)
    tokens = 5 + 8 + 100 + 8
    assert found.estimate("fast", asked) == {"calls": 1, "tokens": tokens + 50, "dollars": pytest.approx((tokens + 500) / 1e6)}
    assert found.estimate("plain", asked) == {"calls": 1, "tokens": tokens + 100}


@pytest.mark.asyncio
async def test_cancelling_in_the_middle_closes_the_connection(tmp_path):
    async with serving(hang(HEAD, chunk("Hel"))) as wire:
        heard = Heard()
        asking = asyncio.create_task(ask(models(tmp_path, profile(base_url=wire.url)), heard))
        while not heard.deltas:
            await asyncio.sleep(0.01)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await asyncio.wait_for(wire.closed.wait(), 5)
    assert len(wire.asked) == 1


@pytest.mark.asyncio
async def test_what_the_listener_raises_ends_the_stream_and_is_raised(tmp_path):
    class Lost(RuntimeError):
        pass

    async def lost(_):
        raise Lost

    async with serving(hang(HEAD, chunk("Hel"))) as wire:
        with pytest.raises(Lost):
            await ask(models(tmp_path, profile(base_url=wire.url)), lost)
        await asyncio.wait_for(wire.closed.wait(), 5)


@pytest.mark.asyncio
async def test_a_timeout_of_the_listener_is_not_taken_for_the_servers(tmp_path):
    async def slow(_):
        raise TimeoutError("the database")

    async with serving(hang(HEAD, chunk("Hel"))) as wire:
        with pytest.raises(TimeoutError, match="the database"):
            await ask(models(tmp_path, profile(base_url=wire.url)), slow)


def test_nothing_of_a_client_shows_the_key(tmp_path):
    found = models(tmp_path, profile(base_url="http://h"))
    assert KEY not in repr(found) + repr(vars(found.server("fast"))["profile"]) + json.dumps(found.profiles()["fast"].model_dump())
