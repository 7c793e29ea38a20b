"""Several devices used as one: the next free device is taken, each runs one program at a time, and all are of the same model."""

import asyncio
import json

import pytest
from agent_fakes import TASK, FakeClient, environment
from workflow_fakes import SearchRoles, engine

from agents import cli
from agents.devices import Devices, names_of, open_devices, setting_of
from agents.journal import read_trace
from verifier.jobs import VerifyJob

JOB = VerifyJob(task_source=TASK, program_source="# speed 2.0\n", tier="quick")


class Judge(FakeClient):
    def __init__(self, name: str, model: str = "H100", unusable: str = ""):
        super().__init__()
        self.name, self.model, self.unusable = name, model, unusable
        self.now = self.most = self.closed = 0

    async def ready(self):
        if self.unusable:
            raise OSError(self.unusable)
        return environment().model_copy(update={"device": self.name, "device_model": self.model})

    async def run(self, job, on_stage=None):
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.003)
        try:
            return await super().run(job, on_stage)
        finally:
            self.now -= 1

    async def close(self):
        self.closed += 1


def pool(*judges: Judge) -> Devices:
    return Devices([judge.name for judge in judges], judges)


@pytest.mark.asyncio
async def test_each_device_takes_one_job_at_a_time_and_all_are_used():
    judges = [Judge("cuda:0"), Judge("cuda:1"), Judge("cuda:2")]
    devices = pool(*judges)
    found = await asyncio.gather(*(devices.run(JOB) for _ in range(12)))
    assert all(one.report.status == "passed" for one in found)
    assert [judge.most for judge in judges] == [1, 1, 1] and [len(judge.calls) for judge in judges] == [4, 4, 4]
    await devices.close()
    assert [judge.closed for judge in judges] == [1, 1, 1]


@pytest.mark.asyncio
async def test_a_caller_that_is_cancelled_gives_its_device_back():
    devices = pool(Judge("cuda:0"), Judge("cuda:1"))
    tasks = [asyncio.ensure_future(devices.run(JOB)) for _ in range(2)]
    await asyncio.sleep(0.001)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert (await asyncio.wait_for(devices.run(JOB), 2)).report.status == "passed"


@pytest.mark.asyncio
async def test_devices_of_two_models_are_no_pool_and_nothing_is_measured():
    judges = [Judge("cuda:0"), Judge("cuda:1", "A100")]
    with pytest.raises(OSError, match="cuda:0 is H100, cuda:1 is A100"):
        await pool(*judges).ready()
    assert "of one model" in (await pool(*judges).run(JOB)).error and judges[0].calls == judges[1].calls == []


@pytest.mark.asyncio
async def test_one_that_cannot_be_used_is_said_and_may_come_back():
    late = Judge("cuda:1", unusable="cuda:1 is not there")
    devices = pool(Judge("cuda:0"), late)
    assert (await devices.run(JOB)).error == "cuda:1 is not there"
    late.unusable = ""
    assert (await devices.ready()).device == "cuda:0" and not (await devices.run(JOB)).error


@pytest.mark.asyncio
async def test_ways_are_verified_on_whichever_device_is_free_and_both_sides_on_one():
    judges = [Judge("cuda:0"), Judge("cuda:1")]
    run = engine("beam", SearchRoles(faults=(0,)), client=pool(*judges), candidates=16)
    summary = await run.execute()
    assert summary.outcome == "improved" and all(judge.calls.count("verify") > 3 for judge in judges)
    assert all(judge.most == 1 for judge in judges)


def test_names():
    assert names_of("cuda:0, cuda:1") == ["cuda:0", "cuda:1"]
    assert (setting_of("cuda:1"), setting_of("cuda:0,cuda:1"), setting_of("cuda:0,cuda:0"), setting_of("cpu")) == ("cuda:1", "cuda", "cuda:0", "cpu")
    for wrong in ("cpu,cuda:0", "", ","):
        with pytest.raises(ValueError, match="several of one kind"):
            names_of(wrong)
    assert open_devices("cuda:0", Judge).name == "cuda:0" and open_devices("cuda:0,cuda:1", Judge).names == ("cuda:0", "cuda:1")


def test_solve_on_two_devices(monkeypatch, tmp_path, capsys):
    opened: list[Judge] = []

    def judge(device, data_dir):
        opened.append(Judge(device))
        return opened[-1]

    monkeypatch.setattr(cli, "open_verifier", judge)
    monkeypatch.setattr(cli, "roles_for", lambda *_: SearchRoles(faults=(0,)).roles())
    task, out = tmp_path / "softmax.py", tmp_path / "out"
    task.write_text(TASK)
    asked = ["solve", str(task), "--out", str(out), "--workflow", "beam", "--workers", "2", "--device", "cuda:0", "--device", "cuda:1", "--quiet"]
    assert cli.main(asked) == 0
    assert [one.name for one in opened] == ["cuda:0", "cuda:1"] and all(one.calls and one.closed for one in opened)
    events, _ = read_trace(out)
    assert events[0].payload["device"] == "cuda" and events[0].payload["workers"] == 2
    assert cli.main(["show", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "branch  stands" in shown and "branch 1 takes the lead with candidate" in shown
    assert "branch 2 begins: It tries idea 1 on the task." in shown
    assert cli.main(["show", str(out), "--json"]) == 0
    assert [way["number"] for way in json.loads(capsys.readouterr().out)["ways"]][:2] == [1, 2]
    assert cli.main([*asked[:3], str(tmp_path / "other"), "--device", "cpu", "--device", "cuda:0"]) == cli.USAGE
    assert "several of one kind" in capsys.readouterr().err
