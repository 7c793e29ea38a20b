"""Removes secrets from exported data: keys in known formats, values of environment variables that are named like keys, credentials in addresses, and
home folders."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

GONE = "[secret]"
SHORTEST = 8  # minimum length of an environment value in characters; shorter ones are ordinary words
NAMED = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|DATABASE_URL)$", re.I)

PATTERNS = (
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.S),
    re.compile(r"\b(?:sk|pk|rk)-(?:ant-|proj-|or-)?[A-Za-z0-9_-]{16,}"),  # model providers
    re.compile(r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|hf_[A-Za-z0-9]{16,}|sw_[A-Za-z0-9_-]{16,})"),
    re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bAIza[\w-]{30,}|\bxox[abeprs]-[\w-]{10,}|\bnvapi-[\w-]{16,}|\b(?:pypi|npm)[-_][A-Za-z0-9_-]{30,}"),
    re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"),  # JSON web tokens
    re.compile(r"(?i)(?<=bearer )[\w.~+/-]{12,}=*"),
    re.compile(r"(?<=://)[^\s/:@'\"]+:[^\s/@'\"]+(?=@)"),  # user:password in an address
    re.compile(r"(?i)\b(?:api[_-]?key|secret|token|passw(?:or)?d)\b(?P<is>[\"']?\s*[:=]\s*)(?P<quote>[\"'])[^\"'\s]{8,}(?P=quote)"),
)
PEOPLE = (re.compile(r"(?<=/home/)[\w.-]+"), re.compile(r"(?<=/Users/)[\w.-]+"), re.compile(r"\b[\w.+-]+@(?:[\w-]+\.)+[A-Za-z]{2,}\b"))


class Scrubber:
    """`environment`: variables whose values count as secrets if their names suggest it (by default, those of this process)."""

    def __init__(self, environment: Mapping[str, str] | None = None):
        named = environment if environment is not None else os.environ
        self._values = sorted((v for k, v in named.items() if NAMED.search(k) and len(v) >= SHORTEST), key=len, reverse=True)

    def secret(self, text: str) -> bool:
        """Returns whether the text contains a key. A person's name does not count, because it can be removed from the text, whereas a secret is a
        reason to drop the whole text."""
        return self._without_keys(text) != text

    def text(self, text: str) -> str:
        text = self._without_keys(text)
        for pattern in PEOPLE:
            text = pattern.sub("[person]", text)
        return text

    def value(self, value: Any) -> Any:
        """Returns the JSON value with all of its text scrubbed, including object keys."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(key)): self.value(inner) for key, inner in value.items()}
        return [self.value(inner) for inner in value] if isinstance(value, list | tuple) else value

    def _without_keys(self, text: str) -> str:
        for value in self._values:
            text = text.replace(value, GONE)
        for pattern in PATTERNS:
            text = pattern.sub(GONE, text)
        return text
