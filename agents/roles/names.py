"""Shortens the names of kernels for people and models."""

from __future__ import annotations

import re

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
