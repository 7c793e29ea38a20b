"""Raw kernels are read from a source without running it, and named as the embedded helper names them."""

import ast
import subprocess
from pathlib import Path

import pytest

from verifier.build import inline_helper
from verifier.build.raw import RawRequest, raw_requests

HELPER = Path(inline_helper.__file__).read_text()


def read(text):
    return raw_requests(ast.parse(text))


def test_constants_at_the_top_are_followed():
    found = read('A = "int x;"\nB = A + """\nint y;"""\nlib = stitch_build("cpp", B, ["-DX"])\nother = stitch_build(language="cuda", source=A)\n')
    assert found == [RawRequest("cpp", "int x;\nint y;", ("-DX",)), RawRequest("cuda", "int x;")]


@pytest.mark.parametrize(
    "text",
    [
        'stitch_build("cuda", open("x").read())',
        'stitch_build("cuda", SOURCE % 3)',
        'stitch_build("fortran", "x")',
        'stitch_build(*"ab")',
        'S = "x"\nS = S.replace("x", "y")\nstitch_build("cuda", S)',
        'def later():\n    return stitch_build("cuda", "x")',
        'stitch_build("cuda", "x", [1])',
    ],
)
def test_what_is_not_constant_is_left_to_the_program(text):
    assert read(text) == []


@pytest.mark.parametrize("language", ["cuda", "cpp"])
def test_the_helper_finds_the_library_under_the_same_name(language, tmp_path, monkeypatch):
    """Runs the helper itself, with a compiler that only writes a file: its key must equal ours."""
    monkeypatch.setenv("STITCH_BUILD_DIR", str(tmp_path))
    monkeypatch.setenv("STITCH_CUDA_ARCH", "sm_90")
    monkeypatch.delenv("STITCH_BUILD", raising=False)

    def compile_nothing(command, **_):
        Path(command[command.index("-o") + 1]).write_bytes(b"")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", compile_nothing)
    monkeypatch.setattr("ctypes.CDLL", lambda path: path)
    namespace = {}
    exec(compile(HELPER, "helper", "exec"), namespace)
    library = namespace["stitch_build"](language, "int x;", ["-DY"])
    assert Path(library).name == RawRequest(language, "int x;", ("-DY",)).library("sm_90")
