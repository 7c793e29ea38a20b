import subprocess

import pytest

from verifier.profiling.nsight import ncu as module
from verifier.profiling.nsight.metrics import requested
from verifier.profiling.nsight.ncu import LOG, Ncu, find_ncu

FAKE = '#!/bin/sh\necho "NVIDIA (R) Nsight Compute Command Line Profiler"\necho "Version 2025.3.1.0 (build 36398880)"\n'


def executable(path, text=FAKE):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch):
    monkeypatch.delenv("STITCH_NCU", raising=False)
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(module, "USUAL", ())
    find_ncu.cache_clear()
    yield
    find_ncu.cache_clear()


def test_where_it_is_not_installed_the_reason_says_how_to_get_it():
    found, why = find_ncu()
    assert found is None and "not installed" in why and "STITCH_NCU" in why


def test_the_product_in_its_usual_place_newest_first(tmp_path, monkeypatch):
    for version in ("2024.1.0", "2025.3.1"):
        executable(tmp_path / "nsight-compute" / version / "ncu")
        (tmp_path / "nsight-compute" / version / "target").mkdir()
    monkeypatch.setattr(module, "USUAL", (str(tmp_path / "nsight-compute/*/ncu"),))
    found, why = find_ncu()
    assert why == "" and found.root == str(tmp_path / "nsight-compute/2025.3.1") and found.version == "2025.3.1.0"
    assert [bind.source for bind in found.binds()] == [found.root]


def test_the_toolkits_launcher_gives_way_to_the_product(tmp_path, monkeypatch):
    executable(tmp_path / "cuda/bin/ncu")  # a launcher, which searches for the product elsewhere: there is none next to it
    monkeypatch.setenv("PATH", str(tmp_path / "cuda/bin"))
    product = executable(tmp_path / "nsight-compute/2025.3.1/ncu")
    (tmp_path / "nsight-compute/2025.3.1/target").mkdir()
    assert find_ncu()[0] is None and "Nsight Compute itself is not" in find_ncu()[1]
    find_ncu.cache_clear()
    monkeypatch.setattr(module, "USUAL", (str(tmp_path / "nsight-compute/*/ncu"),))
    assert find_ncu()[0].command == product


def test_by_setting(tmp_path, monkeypatch):
    monkeypatch.setenv("STITCH_NCU", executable(tmp_path / "odd/ncu"))
    assert find_ncu()[0].root == str(tmp_path / "odd")


def test_the_script_runs_the_party_and_leaves_its_table_alone_in_the_folder(tmp_path):
    fake = [
        "#!/bin/sh",
        'for a; do printf "%s\\n" "$a" >>ARGS; done',
        'while [ "$1" != --log-file ]; do shift; done',
        'echo table >"$2"; shift 2; exec "$@"',
    ]
    command = executable(tmp_path / "ncu", "\n".join(fake).replace("ARGS", str(tmp_path / "arguments")))
    folder = tmp_path / "report"
    folder.mkdir()
    script = Ncu(command, str(tmp_path), "2025.3").script(str(folder), requested(["occupancy"]), ["row_softmax", "scale"], 24)
    done = subprocess.run(["/bin/sh", "-c", script, "sh", "/bin/echo", "the party"], capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"})
    assert done.returncode == 0 and "the party" in done.stdout, done.stderr
    assert [path.name for path in folder.iterdir()] == [LOG]
    arguments = (tmp_path / "arguments").read_text().splitlines()
    for option, value in (
        ("--clock-control", "none"),
        ("--replay-mode", "kernel"),
        ("--profile-from-start", "off"),
        ("--launch-count", "24"),
        ("--print-units", "base"),
        ("--kernel-name", r"regex:\b(row_softmax|scale)$"),
    ):
        assert arguments[arguments.index(option) + 1] == value
    assert "launch__occupancy_limit_registers" in arguments[arguments.index("--metrics") + 1].split(",")


def test_a_failing_tool_shows_in_the_status(tmp_path):
    script = Ncu(executable(tmp_path / "ncu", "#!/bin/sh\nexit 3\n"), str(tmp_path), "1").script(str(tmp_path), ["sm__cycles_active.avg"], [], 1)
    assert subprocess.run(["/bin/sh", "-c", script, "sh", "true"]).returncode == 11
    assert "--kernel-name" not in script
