"""The first second of a judge and its parties: no heavy module is imported before they start, and the result is the same afterwards."""

from __future__ import annotations

import inspect
import subprocess
import sys
import time
import types

import pytest

from verifier.build.inline import OnImport
from verifier.channel import Frame
from verifier.confinement.spawned import wait
from verifier.judge.opening import Opening
from verifier.startup.importing import swift_imports

STARTERS = ["verifier.cli", "verifier.startup.starting", "verifier.judge.process"]
PARTIES = ["verifier.parties.party", "verifier.devices.cuda_early", "verifier.build.compiler"]  # loaded before torch, or in a party without it


@pytest.mark.parametrize("module", [*STARTERS, *PARTIES])
def test_what_starts_a_judge_and_its_parties_is_light(module):
    code = f"import sys, {module}; print(sorted({{'torch', 'numpy', 'pydantic'}} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_modules_of_frames_are_found_by_name_while_libraries_are_imported():
    plain = inspect.getmodule
    frame = sys._getframe()
    with swift_imports():
        assert inspect.getmodule(frame) is sys.modules[__name__]
        assert inspect.getmodule(OnImport) is sys.modules[OnImport.__module__]
        assert inspect.getmodule(eval("__import__('sys')._getframe()", {"__name__": "nowhere"})) is None
    assert inspect.getmodule is plain


def test_a_module_is_changed_as_soon_as_it_is_imported(tmp_path, monkeypatch):
    (tmp_path / "imported_late.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    seen: list[types.ModuleType] = []
    hook = OnImport("imported_late", seen.append)
    monkeypatch.setattr(sys, "meta_path", [hook, *sys.meta_path])
    import imported_late

    assert seen == [imported_late] and imported_late.value == 1


def test_a_process_is_waited_for_to_the_moment():
    process = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    assert wait(process, 60) == 3 and wait(process, 0) == 3
    sleeping = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    with pytest.raises(subprocess.TimeoutExpired):
        wait(sleeping, 0.01)
    sleeping.kill()
    assert wait(sleeping, 60) == -9


def test_the_stage_startup_says_when_what_was_there():
    opening = Opening(time.monotonic() - 2.0, Frame({}))
    opening.mark("job")
    stage = opening.stage()
    assert stage.name == "startup" and stage.seconds >= 2.0 and stage.detail.startswith("job at 2.")
