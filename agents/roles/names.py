"""Shortens the names of kernels for people and models."""

from __future__ import annotations

import re

ROOM = 600  # maximum number of characters of a list that is told in passing
LONGEST_NAME, NAME_END = 100, 36  # maximum length of a kernel's name in characters, and how many characters at its end are kept if it is cut
CAST = re.compile(r"\((?:unsigned )?(?:int|long|short)\)(?=\d)")  # the way Nsight Compute prints an integer template argument
ANONYMOUS = re.compile(r"\(anonymous namespace\)::|<unnamed>::|\{anonymous\}::|_GLOBAL__N_\w*::")


def short_name(name: str) -> str:
    """Returns a kernel's name without anonymous namespaces, return type, arguments and deeply nested template arguments."""
    plain = ANONYMOUS.sub("", name)
    depth = 0
    for at, character in enumerate(plain):
        depth += (character == "<") - (character == ">")
        if character == "(" and depth == 0 and at and not plain.startswith("operator()", max(at - 8, 0)):
            plain = plain[:at]
            break
    plain = re.sub(r"^(?:void|static|__global__)\s+", "", plain.strip())
    plain = CAST.sub("", plain)
    while len(plain) > LONGEST_NAME and re.search(r"<[^<>]*>", plain):
        plain = re.sub(r"<[^<>]*>", "", plain)
    if len(plain) > LONGEST_NAME and 0 < (opened := plain.find("<")) < LONGEST_NAME:
        plain = plain[:opened]  # an unclosed bracket, because the recorded name was truncated
    plain = plain or name
    cut = f"{plain[: LONGEST_NAME - NAME_END - 3]}...{plain[-NAME_END:]}"  # the names of a library's kernels often differ only at the end
    return cut if len(plain) > LONGEST_NAME else plain


def whole_items(text: str, room: int = ROOM, separator: str = ", ") -> str:
    """Returns as many whole items of a list as fit, and the number of those left out. Text without the separator is returned unchanged."""
    if len(text) <= room or separator not in text:
        return text
    items = text.split(separator)
    kept, used = 0, 0
    while kept < len(items) and used + len(items[kept]) <= room:
        used += len(items[kept]) + len(separator)
        kept += 1
    kept = max(kept, 1)
    return f"{separator.join(items[:kept])}{separator}and {len(items) - kept} more like these"
