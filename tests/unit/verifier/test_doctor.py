import json

import pytest

from verifier.devices import cuda_driver
from verifier.startup.doctor import Doctor, examine, in_words


@pytest.fixture(scope="module")
def doctor(tmp_path_factory) -> Doctor:
    return examine(tmp_path_factory.mktemp("data"))


def test_the_cpu_is_described_as_reports_describe_it(doctor):
    cpu = doctor.devices[0]
    assert cpu.device == "cpu" and cpu.ready
    assert cpu.model.startswith("cpu-") and cpu.name
    assert cpu.figures["bandwidth_gbs"] > 0 and cpu.figures["threads"] >= 1


@pytest.mark.skipif(cuda_driver.driver() is not None, reason="this host has a GPU")
def test_without_a_gpu_it_says_so_and_what_to_install(doctor):
    gpu = doctor.devices[1]
    assert not gpu.ready and gpu.problems[0].message.startswith("no GPU found") and gpu.problems[0].hint


def test_every_missing_tool_has_a_hint(doctor):
    assert all(tool.hint for tool in doctor.tools if not tool.found)
    assert {"g++", "bubblewrap", "nvcc", "nsys", "Triton"} <= {tool.name for tool in doctor.tools}


def test_json_is_complete_and_serialisable(doctor):
    data = json.loads(json.dumps(doctor.as_json()))
    assert data["version"] == 1
    assert data["protection"]["sandbox"] in ("bubblewrap", "process")
    assert data["bandwidth_gbs"] == data["figures"]["bandwidth_gbs"]
    assert {check["name"] for check in data["checks"]} == {tool["name"] for tool in data["tools"]}


def test_one_device_may_be_asked_for(tmp_path):
    assert [device.device for device in examine(tmp_path, "cpu").devices] == ["cpu"]


def test_words_name_devices_tools_and_the_sandbox(doctor):
    text = in_words(doctor)
    assert "cpu: ready" in text and "sandbox: " in text and "nsys: " in text
