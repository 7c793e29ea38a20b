"""Event streams and the two dialects, tested on bytes and on individual pieces."""

from __future__ import annotations

import json

import pytest

from agents.llm import sse
from agents.llm.answer import Answer
from agents.llm.anthropic import Anthropic
from agents.llm.call import Body
from agents.llm.faults import Fault, of_status, retry_after
from agents.llm.messages import Message, Request, Usage
from agents.llm.openai import OpenAI
from agents.llm.profiles import AnthropicProfile, OpenAIProfile

STREAM = (
    '\ufeff: keep-alive\r\n\r\ndata: {"text": "Grüße 🎉"}\r\n\r\nevent: ping\rid: 7\rdata:first\rdata: second\r\r'
    ": again\nretry: 10\n\ndata\n\ndata: [DONE]\n\n"
).encode()
EVENTS = ['{"text": "Grüße 🎉"}', "first\nsecond", "", "[DONE]"]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 64, 1000])
def test_events_do_not_depend_on_where_the_bytes_are_cut(size):
    stream = sse.EventStream()
    found = []
    for start in range(0, len(STREAM), size):
        found += stream.feed(STREAM[start : start + size])
    assert found + stream.feed(b"", final=True) == EVENTS


def test_a_last_event_without_its_empty_line_counts_at_the_end():
    stream = sse.EventStream()
    assert stream.feed(b"data: a\n\ndata: b") == ["a"]
    assert stream.feed(b"", final=True) == ["b"]


def test_bytes_that_are_not_utf8_do_not_end_the_stream():
    assert sse.EventStream().feed(b"data: a\xff\n\n") == ["a\ufffd"]


def test_an_event_without_an_end_is_refused(monkeypatch):
    monkeypatch.setattr(sse, "LONGEST_EVENT", 100)
    stream = sse.EventStream()
    with pytest.raises(sse.EventTooLong):
        for _ in range(100):
            stream.feed(b"data: aaa\n")


@pytest.mark.parametrize(("data", "kind"), [(b"\r\n\t{}", "json"), (b" <!doctype html>", "page"), (b": hello\n\n", "events"), (b"\n\n  ", "")])
def test_a_body_is_taken_for_what_it_is(data, kind):
    body = Body()
    for byte in data:
        body.feed(bytes([byte]))
    assert body.kind == kind


def test_a_character_that_comes_in_two_pieces_is_one_and_half_of_one_is_replaced():
    answer, halves = Answer(), json.loads('["ok \\ud83c", "\\udf89 \\udf89", "!\\ud83c"]')
    deltas = [delta for piece in halves for delta in answer.add("text", piece)] + answer.close()
    assert answer.text == "".join(delta.text for delta in deltas) == "ok 🎉 \ufffd!\ufffd"


# Text and reasoning


def pieces(*given: str) -> tuple[str, str, str]:
    answer = Answer()
    shown = [d for piece in given for d in answer.add("text", piece)] + answer.close()
    return answer.reasoning, answer.text, "".join(d.text for d in shown if d.kind == "text")


@pytest.mark.parametrize("size", [1, 2, 3, 50])
def test_think_tags_are_parted_from_the_text(size):
    whole = "\n<think>\nIf a < b </thin then\n</think>\n\nThe <think> tag </think> stays."
    reasoning, text, shown = pieces(*(whole[i : i + size] for i in range(0, len(whole), size)))
    assert reasoning.strip() == "If a < b </thin then"
    assert text == shown == "The <think> tag </think> stays."


@pytest.mark.parametrize("whole", ["<thin", "<", "a <think>b</think>", "plain", "  "])
def test_texts_that_only_look_like_it_stay_whole(whole):
    assert pieces(*whole) == ("", whole, whole)


def test_a_tag_that_the_template_opened_is_only_closed():
    reasoning, text, _ = pieces("so it ", "is</think>", "\n\nYes")
    assert (reasoning, text) == ("so it is", "Yes")


def test_thinking_without_an_end_is_all_reasoning():
    assert pieces("<think>on and ", "on")[:2] == ("on and on", "")


# OpenAI


def openai(**fields) -> OpenAI:
    return OpenAI(OpenAIProfile(**{"kind": "openai", "base_url": "http://h/v1", "model": "m", **fields}))


ASKED = Request(messages=[Message(role="system", content="S"), Message(role="user", content="U")], max_tokens=50, purpose="coder/repair")


def test_openai_body():
    body = openai(temperature=0.5, body={"seed": 3}).body(ASKED, 40)
    assert body == {
        "model": "m", "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}], "max_tokens": 40, "stream": True,
        "stream_options": {"include_usage": True}, "temperature": 0.5, "seed": 3,
    }  # fmt: skip
    assert openai().body(ASKED.model_copy(update={"temperature": 0.0}), 40)["temperature"] == 0.0
    assert "max_completion_tokens" in openai(base_url="https://api.openai.com/v1").body(ASKED, 40)


@pytest.mark.parametrize(
    ("message", "param", "gone", "come"),
    [
        (
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
            "max_tokens",
            "max_tokens",
            "max_completion_tokens",
        ),
        ("Unrecognized request argument supplied: stream_options", None, "stream_options", None),
        (
            "Unsupported value: 'temperature' does not support 0.5 with this model. Only the default (1) value is supported.",
            "temperature",
            "temperature",
            None,
        ),
        ("Extra inputs are not permitted: stream_options", None, "stream_options", None),
    ],
)
def test_openai_leaves_out_what_a_server_does_not_take(message, param, gone, come):
    dialect = openai(temperature=0.5)
    error = {"error": {"message": message, "type": "invalid_request_error", "param": param}}
    assert dialect.adapt(400, error)
    body = dialect.body(ASKED, 40)
    assert gone not in body and (come is None or body[come] == 40)
    assert not dialect.adapt(400, error)  # not streamed


def test_openai_does_not_adapt_to_other_refusals():
    dialect = openai()
    assert not dialect.adapt(400, {"error": {"message": "max_tokens is too large: 40", "param": "max_tokens"}})
    assert not dialect.adapt(400, "bad request") and not dialect.adapt(401, {"error": {"message": "Unknown temperature"}})


def take(dialect, *events) -> Answer:
    answer = Answer()
    for data in events:
        dialect.event(data if isinstance(data, str) else json.dumps(data), answer)
    answer.close()
    return answer


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_openai_reasoning_and_usage(field):
    answer = take(
        openai(),
        {"model": "m-1", "choices": [{"index": 0, "delta": {"role": "assistant", "content": None, field: "hm"}}]},
        {"choices": [{"index": 0, "delta": {"content": "A"}}, {"index": 1, "delta": {"content": "other"}}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}], "usage": None},
        {
            "choices": [],
            "usage": {
                "prompt_tokens": 9,
                "completion_tokens": 4,
                "prompt_tokens_details": {"cached_tokens": 3},
                "completion_tokens_details": {"reasoning_tokens": 2},
            },
        },
        "[DONE]",
    )
    assert (answer.text, answer.reasoning, answer.finish, answer.model, answer.ended) == ("A", "hm", "length", "m-1", True)
    assert answer.usage == Usage(input_tokens=9, output_tokens=4, cached_tokens=3, reasoning_tokens=2)


def test_openai_content_in_parts():
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "A"}, "x", {"type": "image"}]
    answer = take(openai(), {"choices": [{"delta": {"content": parts}}]})
    assert (answer.text, answer.reasoning) == ("A", "hm")


def test_openai_a_refusal_is_a_filter():
    answer = take(openai(), {"choices": [{"delta": {"refusal": "No."}, "finish_reason": "stop"}]})
    assert (answer.text, answer.finish) == ("No.", "filter")


@pytest.mark.parametrize(
    ("error", "kind", "again"),
    [
        ({"error": {"message": "slow down", "type": "rate_limit_error", "code": "rate_limit_exceeded"}}, "busy", True),
        ({"error": {"message": "slow down", "code": 429}}, "busy", True),
        ({"error": {"message": "no credit", "type": "insufficient_quota", "code": "insufficient_quota"}}, "refused", False),
        ({"error": {"message": "This model's maximum context length is 4096 tokens", "type": "BadRequestError", "code": 400}}, "too-long", False),
        ({"object": "error", "message": "went wrong", "type": "InternalServerError", "code": 500}, "unreachable", True),
        ({"error": "CUDA out of memory"}, "unreachable", True),
        ({"error": {"message": "no", "type": "authentication_error"}}, "refused", False),
    ],
)
def test_openai_errors_in_the_stream(error, kind, again):
    with pytest.raises(Fault) as fault:
        take(openai(), {"choices": [{"delta": {"content": "half"}}]}, error)
    assert (fault.value.kind, fault.value.again) == (kind, again)


@pytest.mark.parametrize("data", ["{", '{"choices": [', "nothing"])
def test_openai_a_piece_that_is_no_json_is_a_broken_stream(data):
    with pytest.raises(Fault) as fault:
        take(openai(), data)
    assert fault.value.again


@pytest.mark.parametrize("reason", ["error", "abort"])
def test_openai_a_reply_that_the_server_broke_off(reason):
    with pytest.raises(Fault) as fault:
        take(openai(), {"choices": [{"delta": {}, "finish_reason": reason}]})
    assert fault.value.again


# Anthropic


def anthropic(**fields) -> Anthropic:
    return Anthropic(AnthropicProfile(**{"kind": "anthropic", "base_url": "http://h/v1", "model": "m", **fields}))


def test_anthropic_body_has_its_system_apart_and_marks_for_the_cache():
    body = anthropic(temperature=1.5).body(ASKED, 40)
    mark = {"cache_control": {"type": "ephemeral"}}
    assert body == {
        "model": "m", "max_tokens": 40, "stream": True, "temperature": 1.0, "system": [{"type": "text", "text": "S", **mark}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "U", **mark}]}],
    }  # fmt: skip
    thinking = anthropic(temperature=0.3, body={"thinking": {"type": "enabled", "budget_tokens": 1024}}).body(ASKED, 40)
    assert "temperature" not in thinking and thinking["thinking"]["budget_tokens"] == 1024


def test_anthropic_headers():
    assert anthropic().headers("k")["x-api-key"] == "k" and "anthropic-version" in anthropic().headers(None)


def test_anthropic_stream():
    answer = take(
        anthropic(),
        {
            "type": "message_start",
            "message": {
                "model": "m-1",
                "content": [],
                "usage": {"input_tokens": 5, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 20, "output_tokens": 1},
            },
        },
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}},
        {"type": "ping"},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "abc"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "A"}},
        {"type": "something_new"},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 40}},
        {"type": "message_stop"},
    )
    assert (answer.text, answer.reasoning, answer.finish, answer.model, answer.ended) == ("A", "hm", "stop", "m-1", True)
    assert answer.usage == Usage(input_tokens=125, output_tokens=40, cached_tokens=100, cache_written_tokens=20)


@pytest.mark.parametrize(("reason", "finish"), [("max_tokens", "length"), ("refusal", "filter"), ("stop_sequence", "stop"), ("pause_turn", "other")])
def test_anthropic_finish(reason, finish):
    assert take(anthropic(), {"type": "message_delta", "delta": {"stop_reason": reason}}).finish == finish


@pytest.mark.parametrize(
    ("kind", "message", "failure", "again"),
    [
        ("overloaded_error", "Overloaded", "busy", True),
        ("rate_limit_error", "slow", "busy", True),
        ("api_error", "oops", "unreachable", True),
        ("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum", "too-long", False),
        ("invalid_request_error", "messages: at least one", "refused", False),
        ("authentication_error", "invalid x-api-key", "refused", False),
    ],
)
def test_anthropic_errors_in_the_stream(kind, message, failure, again):
    with pytest.raises(Fault) as fault:
        take(anthropic(), {"type": "error", "error": {"type": kind, "message": message}})
    assert (fault.value.kind, fault.value.again) == (failure, again)


def test_anthropic_whole():
    answer = Answer()
    content = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "A"}]
    deltas = anthropic().whole(
        {"content": content, "model": "m-1", "stop_reason": "end_turn", "usage": {"input_tokens": 3, "output_tokens": 2}}, answer
    )
    assert [d.kind for d in deltas] == ["reasoning", "text"] and answer.finish == "stop" and answer.usage.input_tokens == 3


# Statuses


@pytest.mark.parametrize(
    ("status", "error", "kind", "again"),
    [
        (400, {"error": {"message": "bad"}}, "refused", False),
        (400, {"error": {"message": "too many tokens", "code": "context_length_exceeded"}}, "too-long", False),
        (401, {"error": {"message": "no"}}, "refused", False),
        (402, "", "refused", False),
        (404, {"detail": "Not Found"}, "refused", False),
        (408, "", "unreachable", True),
        (409, "", "unreachable", True),
        (413, "", "too-long", False),
        (422, {"detail": [{"msg": "field required"}]}, "refused", False),
        (425, "", "unreachable", True),
        (429, {"error": {"message": "slow"}}, "busy", True),
        (429, {"error": {"message": "You exceeded your current quota, please check your plan", "code": "insufficient_quota"}}, "refused", False),
        (500, "", "unreachable", True),
        (502, "Bad Gateway", "unreachable", True),
        (503, "", "busy", True),
        (529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, "busy", True),
        (302, "", "refused", False),
    ],
)
def test_statuses(status, error, kind, again):
    fault = of_status(status, error, {}, "SOME_KEY")
    assert (fault.kind, fault.again) == (kind, again) and fault.hint
    assert status != 401 or "SOME_KEY" in fault.hint


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "2.5"}, 2.5),
        ({"retry-after": "30", "retry-after-ms": "1500"}, 1.5),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:30 GMT", "date": "Wed, 21 Oct 2026 07:28:00 GMT"}, 30.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({}, None),
    ],
)
def test_retry_after(headers, seconds):
    assert retry_after(headers) == seconds
