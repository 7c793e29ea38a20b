"""Synthetic tasks can be run, are the same for the same seed, and do not occur in a benchmark; the verdict decides what happens to them."""

from __future__ import annotations

import ast
import asyncio
import json
import random
from itertools import islice

import pytest
import torch

from agents.rl.cli import main
from agents.rl.data import making
from agents.rl.data.leaks import leaks
from agents.rl.data.qualities import CHEATS, Written, borne_out, cheat, honest, wrong_program
from agents.rl.data.structure import structure
from agents.rl.data.synthetic import Exhausted, drawn, generate, wrong
from agents.rl.data.writing import read_rows
from compiler import DeviceFigures
from tests.unit.rl.rl_reports import failed, passed
from verifier.jobs import JobResult
from verifier.parties.capturing.capture import capture
from verifier.report import Environment, Report
from verifier.source import sha256
from verifier.task import Admission, Task

CPU = DeviceFigures.cpu()
TASKS = list(generate(40, 3, {}))
RELU = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x.relu()
"""


def module_of(source: str, **sizes: int) -> dict:
    module: dict = {"__name__": "synthetic"}
    exec(compile(source, "synthetic", "exec"), module)
    module.update({name: size for name, size in sizes.items() if name in module})
    return module


SMALL = {"batch": 2, "tokens": 3, "features": 8, "channels": 4, "height": 5, "width": 6}


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.chain.name)
def test_a_task_is_sound_and_runs(task):
    assert Task.read(task.source).sha == task.sha
    module = module_of(task.source, **SMALL)
    result = module["Model"](*module["get_init_inputs"]())(*module["get_inputs"]())
    assert torch.isfinite(result).all()


def test_the_same_seed_makes_the_same_tasks():
    again = list(generate(12, 3, {}))
    assert [task.sha for task in again] == [task.sha for task in TASKS[:12]]
    assert {task.sha for task in generate(12, 4, {})}.isdisjoint(task.sha for task in TASKS)
    assert sha256("".join(task.source for task in TASKS)) == sha256("".join(task.source for task in generate(40, 3, {})))


def test_no_two_have_one_structure_and_none_is_like_a_benchmark():
    assert len({structure(task.source).key for task in TASKS}) == len(TASKS)
    benchmark = {task.chain.name: task.source.replace("x = ", "z = ").replace("return x", "return z").replace("z = x", "z = x") for task in TASKS[:5]}
    benchmark["relu"] = RELU
    others = {task.sha: task.source for task in generate(40, 3, benchmark)}
    assert leaks(others, benchmark).clean
    with pytest.raises(ValueError, match="cannot be read"):
        next(generate(1, 0, {"odd": "class Model("}))


def test_what_cannot_be_had_is_said(monkeypatch):
    monkeypatch.setattr("agents.rl.data.synthetic.drawn", lambda seed, number: drawn(0, 0))
    with pytest.raises(Exhausted, match="1 tasks of 2"):
        list(generate(2, 0, {}))


def test_a_wrong_chain_has_the_constructor_and_other_results():
    for task in TASKS:
        mistaken = wrong(task.chain, random.Random(task.sha))
        mine, its = module_of(task.source, **SMALL), module_of(mistaken.source(), **SMALL)
        torch.manual_seed(0)
        given = mine["get_inputs"]()
        torch.manual_seed(1)
        right = mine["Model"](*mine["get_init_inputs"]())
        torch.manual_seed(1)
        other = its["Model"](*its["get_init_inputs"]())
        other.load_state_dict(right.state_dict())
        assert other(*given).shape == right(*given).shape
        assert mistaken.source() != task.source


def test_cheats_are_sound_python_and_name_the_program():
    for number, _ in enumerate(CHEATS):
        for task in TASKS[:8]:
            written = cheat(task.source, random.Random(number))
            names = {node.name for node in ast.parse(written.source).body if isinstance(node, ast.ClassDef)}
            assert names == {"ModelNew"} and written.how in CHEATS


def captured(source: str):
    module = module_of(source)
    with torch.no_grad():
        return capture(module["Model"](*module["get_init_inputs"]()), module["get_inputs"](), source, "train")


def first_compiled():
    """Returns the first small task for which the compiler has kernels, with its capture."""
    for task in (task for task in TASKS if len(task.chain.steps) <= 3):
        found = captured(task.source)
        if honest(task.source, found, CPU, random.Random(0)):
            return task, found
    raise AssertionError("no task can be compiled")


def test_the_compiler_writes_several_qualities():
    task, found = first_compiled()
    programs = honest(task.source, found, CPU, random.Random(0))
    assert [program.quality for program in programs][0] == "tuned" and len({program.source for program in programs}) == len(programs)
    other = wrong(task.chain, random.Random(1)).source()
    mistaken = wrong_program(other, captured(other), CPU)
    assert mistaken is None or mistaken.source not in {program.source for program in programs}


def test_a_label_is_kept_where_the_verdict_bears_it_out():
    good, bad = Report.model_validate(passed()), Report.model_validate(failed("wrong_result"))
    lazy = Report.model_validate(passed(program_class="orchestration"))
    kept = {quality: [borne_out(Written(quality, "", ""), report) for report in (good, lazy, bad)] for quality in ("tuned", "slow", "wrong", "cheat")}
    assert kept == {"tuned": [True, False, False], "slow": [True, False, False], "wrong": [False, False, True], "cheat": [False, True, True]}


class Client:
    """A verifier that gives no answer to the second job, finds one task trivial, and reports every third program as wrong."""

    def __init__(self):
        self.jobs, self.busy = [], False

    async def ready(self) -> Environment:
        return Environment.model_validate(passed()["environment"] | {"device": "cpu", "device_name": "test", "device_model": "cpu-test"})

    async def figures(self) -> dict[str, float]:
        return {}

    async def run(self, job, on_stage=None) -> JobResult:
        self.jobs.append(job.kind)
        if job.kind == "admit":
            if len(self.jobs) == 2:
                return JobResult(error="the judge died")
            trivial = job.task_source == TASKS[2].source
            return JobResult(admission=Admission(task=sha256(job.task_source), ok=True, flags=["trivial"] if trivial else []))
        if job.kind == "capture":
            return JobResult(capture=captured(job.task_source))
        hashes = {"task": sha256(job.task_source), "program": sha256(job.program_source)}
        if self.busy:
            return JobResult(report=Report.model_validate(failed("inconclusive", message="this host is busy") | hashes))
        verdict = failed("wrong_result") if self.jobs.count("verify") % 3 == 0 else passed()
        return JobResult(report=Report.model_validate(verdict | hashes))


def lines_of(tasks) -> list[dict]:
    return [making.line_of(task, 3) for task in tasks]


def test_the_filter_goes_on_where_it_was(tmp_path):
    client, into = Client(), making.Lines(tmp_path / "admitted.jsonl")
    tasks = lines_of(TASKS[:4])
    assert asyncio.run(making.admit(tasks, client, into, lambda line: None)) == 2  # the second got no answer; the third is trivial
    with into.path.open("a") as file:
        file.write('{"sha": "torn')
    into = making.Lines(tmp_path / "admitted.jsonl")
    assert asyncio.run(making.admit(tasks, client, into, lambda line: None)) == 3 and client.jobs.count("admit") == 5
    assert [line["why"] for line in into if not line["kept"]] == ["trivial"]


def test_the_filter_runs_tasks_side_by_side_and_each_once(tmp_path):
    class Slow(Client):
        now = most = 0

        async def run(self, job, on_stage=None):
            self.now += 1
            self.most = max(self.most, self.now)
            await asyncio.sleep(0.001)
            self.now -= 1
            return JobResult(admission=Admission(task=sha256(job.task_source), ok=True, flags=[]))

    client, into = Slow(), making.Lines(tmp_path / "admitted.jsonl")
    assert asyncio.run(making.admit(lines_of(TASKS), client, into, lambda line: None, at_once=5)) == len(TASKS)
    assert client.most == 5 and sorted(line["sha"] for line in into) == sorted(task.sha for task in TASKS)


async def made_of(tasks, client, rows, settled, at_once: int = 1) -> int:
    device = await making.figures_of(client)
    return await making.programs(lines_of(tasks), client, device, rows, settled, 0, lambda line: None, at_once)


def test_rows_are_made_once_and_never_of_a_busy_host(tmp_path):
    task, _ = first_compiled()
    rows, settled = making.Lines(tmp_path / "programs.jsonl"), making.Lines(tmp_path / "settled.jsonl")
    client = Client()

    def make() -> int:
        return asyncio.run(made_of([task], client, rows, settled))

    client.busy = True
    assert make() == 0 and not list(settled)
    client.busy, client.jobs = False, []
    made = make()
    found = read_rows(rows.path)
    assert made == len(found) >= 2 and {row.quality for row in found} >= {"tuned"} and all(row.origin == "synthetic" for row in found)
    assert all(row.task_sha == task.sha and sha256(row.program) == row.program_sha for row in found)
    client.jobs = []
    assert make() == 0 and client.jobs == []


def test_a_line_of_another_version_is_refused():
    line = making.line_of(TASKS[0], 3) | {"sha": "0" * 64}
    with pytest.raises(ValueError, match="synthesise again"):
        making.task_of(line)


def test_the_command_continues_and_refuses_another_seed(tmp_path, capsys):
    out = ["synthesise", "--out", str(tmp_path), "--quiet", "--json", "--seed", "3"]
    assert main([*out, "--count", "10"]) == 0 and main([*out, "--count", "20"]) == 0
    shas = [json.loads(line)["sha"] for line in (tmp_path / "tasks.jsonl").read_text().splitlines()]
    assert shas == [task.sha for task in islice(TASKS, 20)]
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["tasks"] == 20
    assert main([*out[:-1], "4", "--count", "10"]) == 2 and "another seed" in capsys.readouterr().err
    assert main([*out, "--programs"]) == 2 and "--admit" in capsys.readouterr().err
