"""Models defined in a profiles file that a test writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agents.llm import Models
from agents.llm.messages import Delta, Message, Reply, Request

KEY = "sk-planted-0123456789abcdefghijklmnop"
QUICK = {"retries": 2, "read_seconds": 5}


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k} = {toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, (int, float)) else '"' + str(value) + '"'


def profile(name: str = "fast", **fields: Any) -> str:
    table = {"kind": "openai", "model": "tiny", **fields}
    if table["kind"] in ("openai", "anthropic"):
        table = {"api_key_env": "PLANTED_KEY", "limits": QUICK, **table}
    else:
        del table["model"]
    return f"[profiles.{name}]\n" + "".join(f"{k} = {toml(v)}\n" for k, v in table.items()) + "\n"


def models(folder: Path, *profiles: str, **environment: str) -> Models:
    (folder / "llm.toml").write_text("".join(profiles))
    return Models({"DATA_DIR": str(folder), "PLANTED_KEY": KEY, **environment})


def request(text: str = "Say hello.", **fields: Any) -> Request:
    return Request(messages=[Message(role="system", content="You are brief."), Message(role="user", content=text)], **{"max_tokens": 100, **fields})


class Heard:
    """Collects what is passed on while a reply is streamed."""

    def __init__(self) -> None:
        self.deltas: list[Delta] = []

    async def __call__(self, delta: Delta) -> None:
        self.deltas.append(delta)

    @property
    def text(self) -> str:
        return "".join(d.text for d in self.deltas if d.kind == "text")

    @property
    def reasoning(self) -> str:
        return "".join(d.text for d in self.deltas if d.kind == "reasoning")


async def ask(
    found: Models, heard: Heard | None = None, *, name: str = "fast", asked: Request | None = None, key: str = "a#1", run: str = "r"
) -> Reply:
    return await found.ask(name, asked or request(), key=key, run=run, on_delta=heard or Heard())
