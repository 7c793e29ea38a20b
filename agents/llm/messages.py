"""Requests to a model and its replies, in a form common to all protocols."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

Author = Literal["system", "user", "assistant"]
Counted = Literal["server", "tokenizer", "estimated"]  # counted by the server or the profile's tokenizer, or estimated from the text length
FinishReason = Literal["stop", "length", "filter", "other"]


class Message(BaseModel):
    role: Author
    content: str


class Request(BaseModel):
    """One exchange. `purpose` names its prompt, such as "coder/repair". It appears in the trace and in the user interface, and is never sent."""

    messages: list[Message] = Field(min_length=1)
    purpose: str = ""
    max_tokens: int = Field(default=16_384, ge=1)  # limit on the reply, including reasoning
    temperature: float | None = Field(default=None, ge=0)  # None: use the profile's value if it has one, otherwise the server's


class Usage(BaseModel):
    """Tokens as counted by the server."""

    input_tokens: int = 0
    output_tokens: int = 0  # including reasoning
    cached_tokens: int = 0  # input tokens that were read from the server's cache
    cache_written_tokens: int = 0  # input tokens that were written to the cache; Anthropic has a separate price for them
    reasoning_tokens: int = 0  # part of the output


class Delta(BaseModel):
    """A piece of a reply as it arrives."""

    kind: Literal["text", "reasoning"] = "text"
    text: str


class Reply(BaseModel):
    text: str
    reasoning: str = ""
    finish: FinishReason = "stop"
    model: str = ""  # model name that the server reports
    usage: Usage | None = None  # None: the server did not report it
    counted: Counted = "server"  # how the tokens in `usage` were counted
    dollars: float | None = None  # cost at the profile's prices; None if the usage or the prices are unknown
    attempts: int = 1  # requests sent for this reply, including rejected and interrupted ones
