"""Byte code that is compiled if the interpreter has none of its own: written once and read by every party."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from verifier.confinement.visible import INSIDE, PACKAGE, bubblewrap
from verifier.devices.opening import open_device
from verifier.judge.pool import Pool
from verifier.limits import Limits
from verifier.startup import bytecode

SHORT = "import sys; sys.path.insert(0, sys.argv[1]); import verifier.parties.party"


@pytest.fixture(scope="module")
def first(tmp_path_factory) -> Path:
    """Returns a data directory with byte code that is compiled once. It can be copied, because all references to its location are relative."""
    place = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(bytecode, "lacking", lambda: True)
        patched.setattr(bytecode, "_IMPORTS", SHORT)
        assert bytecode.make(place).startswith("byte code of ")
    return place


@pytest.fixture
def made(first, tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(bytecode, "lacking", lambda: True)
    monkeypatch.setattr(bytecode, "_IMPORTS", SHORT)
    shutil.copytree(first, tmp_path, dirs_exist_ok=True)
    return tmp_path.resolve() / bytecode.FOLDER


def of(module: str, folder: Path, package: str) -> list[Path]:
    return sorted((folder / package.lstrip("/")).rglob(f"{module}.*.pyc"))


def test_nothing_is_made_where_torch_has_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(bytecode, "lacking", lambda: False)
    assert bytecode.make(tmp_path) == "byte code lies beside torch"
    bytecode.begin(tmp_path)
    assert bytecode.options(tmp_path) == [] and bytecode.bind() == [] and bytecode.party_options(wrapped=True) == ["-B"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_it_lies_where_judges_and_where_parties_look(made, tmp_path):
    assert bytecode.options(tmp_path) == ["-X", f"pycache_prefix={made}"]
    assert of("channel", made, str(PACKAGE)) and of("channel", made, f"{INSIDE}/verifier")


@pytest.mark.slow
def test_a_party_reads_it_and_writes_nothing(made, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "pycache_prefix", str(made))
    assert bytecode.party_options(wrapped=True) == ["-B", "-X", f"pycache_prefix={bytecode.SHOWN}"]
    seen = f"{INSIDE}/verifier" if bubblewrap() else str(PACKAGE)
    pool = Pool(open_device("cpu", tmp_path, later=True), Limits(), spares=0)
    gone = of("seccomp", made, seen) + of("channel", made, seen)
    for path in gone:
        path.unlink()
    broken = of("party", made, seen)[0]
    whole = broken.read_bytes()
    try:
        party = pool.spawn("builder", bare=True)
        party.become("compiler")
        party.end()
        broken.write_bytes(whole[:16] + b"no code")  # with its source's date and size
        party = pool.spawn("builder", bare=True)
        assert party.spawned.exit_status(20.0) not in (None, 0)
        party.end()
    finally:
        pool.close()
    assert not any(path.exists() for path in gone)


@pytest.mark.slow
def test_a_judge_at_rest_makes_it_for_the_parties_that_follow(tmp_path, monkeypatch):
    monkeypatch.setattr(bytecode, "lacking", lambda: True)
    monkeypatch.setattr(bytecode, "_IMPORTS", SHORT)
    monkeypatch.setattr(bytecode, "_work", None)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    bytecode.begin(tmp_path)
    bytecode.wait()
    assert sys.pycache_prefix == str(tmp_path.resolve() / bytecode.FOLDER)


@pytest.mark.slow
def test_what_was_made_for_another_version_is_made_anew(made, tmp_path, monkeypatch):
    """If it were used, it would hide all other byte code, and each process would compile everything."""
    now = bytecode.signature()
    monkeypatch.setattr(bytecode, "signature", lambda: f"{now} and an upgrade")
    assert bytecode.options(tmp_path) == []
    bytecode.make(tmp_path)
    assert bytecode.options(tmp_path) == ["-X", f"pycache_prefix={made}"]
    monkeypatch.setattr(bytecode, "lacking", lambda: False)  # an upgrade that included its own
    assert bytecode.options(tmp_path) == []


def test_an_import_that_died_leaves_no_mark(tmp_path, monkeypatch):
    monkeypatch.setattr(bytecode, "lacking", lambda: True)
    monkeypatch.setattr(bytecode, "_IMPORTS", "import os; os._exit(9)")
    assert "exit status 9" in bytecode.make(tmp_path)
    assert bytecode.options(tmp_path) == []


def test_a_persons_own_folder_for_byte_code_is_not_shown_to_parties(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))
    assert bytecode.bind() == [] and bytecode.party_options(wrapped=True) == ["-B"]
