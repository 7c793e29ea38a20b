"""Generated sections of documents. They are enclosed in markers, a command regenerates them, and a test fails if they are out of date."""

from __future__ import annotations


def between(text: str, what: str, command: str, made: str) -> str:
    """Returns the document with `made` between the markers of `what`. Raises ValueError if the document has no such markers."""
    begin, end = f"<!-- {what}: made by `{command}`; a test keeps it current -->", f"<!-- end of {what} -->"
    if text.count(begin) != 1 or text.count(end) != 1:
        raise ValueError(f"the document needs these marks once each: {begin} and {end}")
    before, _, rest = text.partition(begin)
    return f"{before}{begin}\n\n{made}\n\n{end}{rest.partition(end)[2]}"
