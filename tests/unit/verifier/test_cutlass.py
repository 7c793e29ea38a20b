"""CUTLASS's headers are found if a host has them, and made available to builders."""

import os
import subprocess

import pytest

from verifier.startup import cutlass


@pytest.fixture
def clone(tmp_path, monkeypatch):
    root = tmp_path / "clone"
    for header, text in {
        "include/cutlass/cutlass.h": "#define FROM_CUTLASS 7\n",
        "include/cute/tensor.hpp": "",
        "include/cutlass/version.h": "#define CUTLASS_MAJOR 4\n#define CUTLASS_MINOR 2\n#define CUTLASS_PATCH 1\n",
        "tools/util/include/cutlass/util/packed_stride.hpp": "#define STRIDES 1\n",
    }.items():
        (root / header).parent.mkdir(parents=True, exist_ok=True)
        (root / header).write_text(text)
    monkeypatch.setenv("CUTLASS_PATH", str(root))
    cutlass.found.cache_clear()
    yield root
    cutlass.found.cache_clear()


def test_a_clone_that_a_variable_names(clone):
    assert cutlass.found() == str(clone) and cutlass.version() == "4.2.1"
    assert cutlass.signature() == [f"CUTLASS 4.2.1 at {clone}"]
    assert [(bind.source, bind.target) for bind in cutlass.bind()] == [(str(clone), "/opt/cutlass")]
    assert cutlass.variables(True)["CUTLASS_ROOT"] == "/opt/cutlass" and cutlass.variables(True)["CUTLASS_INCLUDE"] == "/opt/cutlass/include"
    assert cutlass.variables(True)["CUTLASS_PATH"] == "/opt/cutlass" and cutlass.variables(False)["CUTLASS_DIR"] == str(clone)


def test_half_of_it_is_nothing(clone):
    (clone / "include/cute/tensor.hpp").unlink()
    cutlass.found.cache_clear()
    assert cutlass.found() != str(clone)


def test_compilers_and_programs_find_it(clone, tmp_path, monkeypatch):
    """The headers are found by name alone and in a folder next to the program, but headers that the program brings along take precedence."""
    home = tmp_path / "home"
    monkeypatch.setenv("CPLUS_INCLUDE_PATH", "")
    cutlass.show(str(home))
    cutlass.show(str(home))
    assert (home / "cutlass/include/cutlass/cutlass.h").exists() and (home / "third_party/cutlass/include/cute/tensor.hpp").exists()
    unit = '#include <cutlass/cutlass.h>\n#include "cutlass/util/packed_stride.hpp"\nstatic_assert(FROM_CUTLASS + STRIDES == 8, "");'
    done = subprocess.run(["g++", "-fsyntax-only", "-x", "c++", "-"], input=unit, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    own = tmp_path / "own" / "cutlass"
    own.mkdir(parents=True)
    (own / "cutlass.h").write_text("#define FROM_CUTLASS 0\n")
    unit = '#include <cutlass/cutlass.h>\nstatic_assert(FROM_CUTLASS == 0, "");'
    assert subprocess.run(["g++", "-fsyntax-only", f"-I{own.parent}", "-x", "c++", "-"], input=unit, text=True).returncode == 0


def test_a_host_without_it(tmp_path, monkeypatch):
    monkeypatch.setattr(cutlass, "_candidates", lambda: [str(tmp_path)])
    cutlass.found.cache_clear()
    assert cutlass.found() == "" and cutlass.bind() == [] and cutlass.variables(True) == {} and cutlass.signature() == []
    assert "pip install --no-deps nvidia-cutlass" in cutlass.INSTALL
    cutlass.found.cache_clear()
    before = dict(os.environ)
    monkeypatch.delenv("CUTLASS_PATH", raising=False)
    cutlass.show(str(tmp_path))
    assert os.environ.get("CPLUS_INCLUDE_PATH") == before.get("CPLUS_INCLUDE_PATH")
