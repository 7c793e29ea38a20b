import os
import subprocess

import pytest

from verifier.profiling.nsight import nsys as module
from verifier.profiling.nsight.nsys import Nsys, find_nsys, product_root, unwrap

FAKE = '#!/bin/sh\n[ "$1" = --version ] && echo "NVIDIA Nsight Systems version 2025.3.1.0-1234" && exit 0\necho "ran: $*"\n'


def executable(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch):
    for name in ("STITCH_NSYS", "STITCH_NSYS_LIBRARIES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(module, "USUAL", ())
    find_nsys.cache_clear()
    yield
    find_nsys.cache_clear()


def test_where_it_is_not_installed_the_reason_says_how_to_get_it():
    found, why = find_nsys()
    assert found is None and "not installed" in why and "STITCH_NSYS" in why


def test_beside_nsight_compute(tmp_path, monkeypatch):
    command = executable(tmp_path / "nsight-compute/2025.3.1/host/target-linux-x64/nsys", FAKE)
    monkeypatch.setattr(module, "USUAL", (str(tmp_path / "nsight-compute/*/host/target-linux-x64/nsys"),))
    monkeypatch.setattr(module, "missing_libraries", lambda command, libraries: [])
    found, why = find_nsys()
    assert (found.command, found.version, why) == (command, "2025.3.1.0", "")
    assert found.root == str(tmp_path / "nsight-compute/2025.3.1")


def test_a_missing_library_of_the_importer_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("STITCH_NSYS", executable(tmp_path / "bin/nsys", FAKE))
    monkeypatch.setattr(module, "missing_libraries", lambda command, libraries: ["libdw.so.1"])
    found, why = find_nsys()
    assert found is not None and why == "its importer needs libdw.so.1: apt-get install libdw1"


def test_libraries_beside_it_or_given_are_enough(tmp_path):
    command = executable(tmp_path / "nsight-systems/2025.5/bin/nsys", FAKE)
    assert product_root(command) == str(tmp_path / "nsight-systems/2025.5")
    for soname in ("libdw.so.1", "libelf.so.1"):
        executable(tmp_path / "given" / soname, "")
    assert module.missing_libraries(command, str(tmp_path / "given")) == []


def test_a_wrapper_leads_to_the_real_command_and_its_libraries(tmp_path):
    real = executable(tmp_path / "opt/nsys", "\x7fELF")
    wrapper = executable(tmp_path / "bin/nsys", f'#!/bin/sh\nLD_LIBRARY_PATH=/opt/lib${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}} exec {real} "$@"\n')
    assert unwrap(wrapper) == (real, "/opt/lib")
    assert unwrap(real) == (real, "")


def test_the_script_profiles_exports_and_removes_the_raw_report(tmp_path):
    """Runs the script with a fake that handles files as nsys does."""
    fake = """#!/bin/sh
case "$1" in
profile) while [ "$1" != -o ]; do shift; done; echo raw >"$2.nsys-rep"; shift 2; exec "$@";;
export) while [ "$1" != -o ]; do shift; done; cp FIXTURE "$2";;
esac
"""
    data = os.path.join(os.path.dirname(__file__), "../../../data/nsys-convnet-h200.sqlite")
    command = executable(tmp_path / "nsys", fake.replace("FIXTURE", os.path.abspath(data)))
    folder = tmp_path / "report"
    folder.mkdir()
    root = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../../.."))
    script = Nsys(command, str(tmp_path), "2025.3").script(str(folder), [root], wrapped=False)
    done = subprocess.run(["/bin/sh", "-c", script, "sh", "/bin/echo", "the party"], capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"})
    assert done.returncode == 0, done.stderr
    assert "the party" in done.stdout
    assert os.listdir(folder) == ["timeline"]


def test_sampling_stays_off_and_the_steps_have_their_exit_status():
    script = Nsys("/opt/nsys", "/opt", "1.0", libraries="/libs").script("/report", ["/p"], wrapped=True)
    assert "--sample=none" in script and "--cpuctxsw=none" in script
    assert [f"exit {n}" in script for n in (11, 12, 13)] == [True] * 3
    assert "LD_LIBRARY_PATH=/opt/nsys-libraries" in script and "/libs" not in script
