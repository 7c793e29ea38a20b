"""Counts the tokens of a text: an overestimate for limits, an approximation if the server reports no counts, and an exact number if a tokenizer is
available."""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path
from typing import Any

from agents.llm.errors import ModelFailure
from agents.llm.messages import Counted, Request, Usage

BYTES_PER_TOKEN = 3.0  # with current vocabularies, code and English have 3 to 4 bytes per token and other scripts have about 3
USUAL_BYTES = 3.7  # a typical value, for counts that are only informative
PER_MESSAGE = 8  # for the role and separators in a chat template


def estimate_input(request: Request) -> int:
    return sum(math.ceil(len(message.content.encode()) / BYTES_PER_TOKEN) + PER_MESSAGE for message in request.messages)


def usage_of(request: Request, reply: str, tokenizer: Path | None = None) -> tuple[Usage, Counted]:
    """Returns the tokens of an exchange that no server counted, and how they were determined. Raises `ModelFailure` if the tokenizer cannot be
    used."""
    known = None if tokenizer is None else _tokenizer(tokenizer)

    def count(text: str) -> int:
        return math.ceil(len(text.encode()) / USUAL_BYTES) if known is None else len(known.encode(text, add_special_tokens=False).ids)

    asked = sum(count(message.content) + PER_MESSAGE for message in request.messages)
    return Usage(input_tokens=asked, output_tokens=count(reply)), "estimated" if tokenizer is None else "tokenizer"


@lru_cache(maxsize=4)
def _tokenizer(path: Path) -> Any:
    try:
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(path))
    except ImportError:
        raise ModelFailure("configuration", f"{path} cannot be read without the package tokenizers", "install it, or leave tokenizer out") from None
    except Exception as error:  # raised by the package if a file is not a tokenizer
        said = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise ModelFailure("configuration", f"the tokenizer {path} cannot be read: {said}", "name a tokenizer.json, or leave tokenizer out") from None
