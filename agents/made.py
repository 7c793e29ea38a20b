"""Parts of documents that are made from code: they stand between marks, a command writes them anew, and a test tells when they are stale."""

from __future__ import annotations


def between(text: str, what: str, command: str, made: str) -> str:
    """The document with `made` between the marks of `what`. Raises ValueError where it has no such marks."""
    begin, end = f"<!-- {what}: made by `{command}`; a test keeps it current -->", f"<!-- end of {what} -->"
    if text.count(begin) != 1 or text.count(end) != 1:
        raise ValueError(f"the document needs these marks once each: {begin} and {end}")
    before, _, rest = text.partition(begin)
    return f"{before}{begin}\n\n{made}\n\n{end}{rest.partition(end)[2]}"
