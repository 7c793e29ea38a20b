"""What is asked of a model and what comes back, the same for every protocol."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

Author = Literal["system", "user", "assistant"]
Counted = Literal["server", "tokenizer", "estimated"]  # tokens: by the server, by a tokenizer that the profile names, or from the length of the text
FinishReason = Literal["stop", "length", "filter", "other"]


class Message(BaseModel):
    role: Author
    content: str


class Request(BaseModel):
    """One exchange. `purpose` names the prompt that it was made from, such as "coder/repair": for the trace and for people, never sent."""

    messages: list[Message] = Field(min_length=1)
    purpose: str = ""
    max_tokens: int = Field(default=16_384, ge=1)  # of the reply, reasoning included
    temperature: float | None = Field(default=None, ge=0)  # null: the profile's, else the server's


class Usage(BaseModel):
    """Tokens as the server counted them."""

    input_tokens: int = 0
    output_tokens: int = 0  # reasoning included
    cached_tokens: int = 0  # of the input, read from the server's cache
    cache_written_tokens: int = 0  # of the input, written to it; Anthropic has a price of its own for that
    reasoning_tokens: int = 0  # of the output


class Delta(BaseModel):
    """A piece of a reply as it arrives."""

    kind: Literal["text", "reasoning"] = "text"
    text: str


class Reply(BaseModel):
    text: str
    reasoning: str = ""
    finish: FinishReason = "stop"
    model: str = ""  # as the server names it
    usage: Usage | None = None  # null: the server did not say
    counted: Counted = "server"  # who counted `usage`
    dollars: float | None = None  # by the profile's prices; null where usage or prices are unknown
    attempts: int = 1  # requests that were sent for it, refused and broken ones included
