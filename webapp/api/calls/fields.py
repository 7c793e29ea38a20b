"""Field types that several requests share."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from verifier.source import MAX_SOURCE_BYTES

LARGEST = 2**63 - 1  # largest value of a numeric column


def storable(text: str) -> str:
    """Return text that a database can store and that can be hashed."""
    if "\0" in text:
        raise ValueError("the text has a NUL character; send plain text")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("the text is not valid Unicode: it contains half a surrogate pair") from None
    return text


def unix_lines(text: str) -> str:
    """Normalise line endings to Unix style, because a source's hash depends on them."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


Text = Annotated[str, AfterValidator(storable)]
Source = Annotated[str, Field(max_length=MAX_SOURCE_BYTES, min_length=1), AfterValidator(unix_lines), AfterValidator(storable)]
Seq = Annotated[int, Field(ge=0, le=LARGEST)]
Number = Annotated[int, Field(ge=0, le=2**31 - 1, description="Number of a candidate within its run, from 1.", examples=[3])]
Sha = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the content, in hexadecimal.")]
