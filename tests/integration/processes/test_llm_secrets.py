"""A model's key in a whole installation, with a server that echoes it. The key must be in the orchestrator's environment and nowhere else."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.processes.stack import Stack, prepared
from tests.integration.processes.test_kills import TASK, WRONG
from tests.unit.agents.llm_server import DONE, Asked, chunk, event, reply, serving, stream, usage

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

KEY = "sk-planted-5d0a93c2e7f14b68"

# The task looks for the key wherever it runs. If it finds the key, the task is unsound, and no model is ever queried.
NOSY = f"""import glob
import os

FOUND = []


def look():
    wanted = "".join(map(chr, {[ord(c) for c in KEY]}))  # so that the source itself does not hold it
    for name, value in os.environ.items():
        if wanted in value:
            FOUND.append("environment " + name)
    for path in glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline"):
        try:
            if wanted.encode() in open(path, "rb").read():
                FOUND.append(path)
        except OSError:
            pass
    if FOUND:
        raise RuntimeError("found it in " + repr(FOUND))


"""
NOSY += TASK.replace("def get_inputs():", "def get_inputs():\n    look()")
PROGRAM = WRONG.partition("def get_inputs")[0]  # wrong, so that reaching its verdict does not take minutes of timing


@contextmanager
def server() -> Iterator[tuple[str, list[Asked]]]:
    """Refuses the first request, breaks off the response to the second, and answers the others. Every response repeats what the server was sent."""

    async def refuse(asked, writer):
        await reply({"error": {"message": f"these headers are not enough: {json.dumps(asked.headers)}"}}, "401 X")(asked, writer)

    async def broken(asked, writer):
        said = asked.headers["authorization"]
        await stream(chunk(said), event({"error": {"message": said, "code": 500}}))(asked, writer)

    async def good(asked, writer):
        said = asked.headers["authorization"]
        pieces = [chunk(delta={"reasoning_content": said}), chunk(f"{said}\n```python\n# {said}\n"), chunk(PROGRAM + "```\n"), chunk(finish="stop")]
        await stream(*pieces, usage(), DONE)(asked, writer)

    ready, holder = threading.Event(), []

    async def main() -> None:
        async with serving(refuse, broken, good) as wire:
            stop = asyncio.Event()
            holder.extend([wire, stop, asyncio.get_running_loop()])
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    ready.wait(30)
    wire, stop, loop = holder
    try:
        yield wire.url, wire.asked
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()


def environment_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


def test_the_key_is_in_the_orchestrator_and_nowhere_else(tmp_path):
    stack = Stack(prepared(tmp_path / "data"), PLANTED_KEY=KEY)
    stack.data.mkdir(mode=0o700, exist_ok=True)
    with server() as (url, asked):
        profile = f'kind = "openai"\nbase_url = "{url}"\nmodel = "m"\napi_key_env = "PLANTED_KEY"\n'
        tape = '[profiles.tape]\nkind = "cassette"\nfile = "tape.jsonl"\nrecord = "fast"\n'
        (stack.data / "llm.toml").write_text(f"[profiles.fast]\n{profile}{tape}")
        stack.start()
        try:
            assert KEY.encode() in environment_of(stack.process_of("orchestrator"))
            for name in ("web", "verifier"):
                assert KEY.encode() not in environment_of(stack.process_of(name)), name
            run = submitted(stack)
            paused = stack.await_true(lambda: kinds(stack, run).get("run.paused"), "the pause after the refusal")
            assert "401" in paused["reason"] and KEY not in paused["reason"]
            person = stack.browser()
            pages = [person.get(f"/runs/{run}/")]
            person.post(f"/runs/{run}/control", action="resume")
            ended = stack.await_true(lambda: kinds(stack, run).get("run.finished"), "the end")
            seen = kinds(stack, run)
            assert (
                seen["llm.completed"]["profile"] == "tape"
                and seen["candidate.proposed"]
                and seen["verification.finished"]["status"] == "wrong_result"
            ), ended
            assert len(asked) >= 3 and all(a.headers["authorization"] == f"Bearer {KEY}" for a in asked)
            assert stack.query("SELECT 1 FROM runs_event WHERE payload::text LIKE %s", "%[key]%"), "the server did repeat it"
            pages += [person.get(f"/runs/{run}/"), json.dumps(person.events(run))]
            stack.manage("export_trace", run, str(tmp_path / "exported"))
            said = stack.manage("llm_check", "tape")
            assert KEY not in "".join(pages) + said + stack.logs()
            assert tables_with(stack, KEY) == []
        finally:
            stack.stop()
    assert (stack.data / "tape.jsonl").stat().st_size > 0
    assert files_with(tmp_path, KEY) == []


def submitted(stack: Stack) -> str:
    """Creates a run with the model as Coder and Judge, using the same code as the pages."""
    (stack.data / "task.py").write_text(NOSY)
    made = stack.manage(
        "shell", "-v", "0", "-c",
        "from webapp.accounts.models import Team; from webapp.runs.services import create_run; from agents.settings import Budget, Settings; "
        f"source = open({str(stack.data / 'task.py')!r}).read(); "
        "settings = Settings(coder='tape', judge='tape', budget=Budget(candidates=1, calls=6)); "
        "print(create_run(team=Team.objects.first(), user=None, task_source=source, title='nosy', settings=settings).pk)",
    )  # fmt: skip
    return made.split()[-1]


def kinds(stack: Stack, run: str) -> dict[str, dict]:
    """Returns the last payload of each kind of event."""
    return dict(stack.query("SELECT kind, payload FROM runs_event WHERE run_id = %s ORDER BY seq", run))


def tables_with(stack: Stack, text: str) -> list[str]:
    """Returns the tables with a row that contains the text, either as text or as bytes."""
    found = []
    for (name,) in stack.query("SELECT tablename FROM pg_tables WHERE schemaname = 'public'"):
        looks = f'SELECT 1 FROM "{name}" t WHERE t::text LIKE %s OR t::text LIKE %s LIMIT 1'
        if stack.query(looks, f"%{text}%", f"%{text.encode().hex()}%"):
            found.append(name)
    return found


def files_with(folder: Path, text: str) -> list[str]:
    return [str(path) for path in folder.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]
