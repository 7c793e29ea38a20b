"""The tokens of a program, and their colours, which must not depend on where colouring starts."""

from __future__ import annotations

from pathlib import Path

from pygments.lexers import PythonLexer

from webapp.diffs.anatomy import anatomy
from webapp.diffs.highlight import Colours, _class_of, highlighted_lines
from webapp.environment import ROOT

PROGRAM = '''import torch

SOURCE = r"""
/* a comment of
   two lines */
extern "C" __global__ void add(const float* x, float* y) { y[0] = x[0]; }

template <int N>
__global__ void __launch_bounds__(256)
scale(float* y) {
    if (N) { y[0] *= N; }
}
namespace detail { struct Sum { static int join(int a) { return a; } }; }
"""


class ModelNew(torch.nn.Module):
    def forward(self, x):
        """A docstring with int64_t in it stays a docstring."""
        return x
'''


def test_cuda_inside_a_python_string_is_coloured_as_cuda():
    lines = highlighted_lines(PROGRAM)
    assert ["".join(text for _, text in line) for line in lines] == PROGRAM.split("\n")
    native = {text: name for name, text in lines[5]}
    assert native["float"].startswith("k") and native["extern"].startswith("k")
    assert {name for name, _ in lines[4]} == {"cm"}, "the second line of a comment"
    assert {name for name, text in lines[18] if "docstring" in text} == {"sd"}


def test_kernels_functions_and_classes_are_found():
    found = {one.name: (one.begin + 1, one.end, one.kind) for one in anatomy(PROGRAM).definitions}
    assert found["add"] == (6, 6, "kernel") and found["scale"] == (8, 12, "kernel")
    assert found["ModelNew.forward"][2] == "function" and found["join"][2] == "function"
    assert anatomy(PROGRAM).scope_at(11) == "scale" and anatomy(PROGRAM).scope_at(20) == "ModelNew.forward"
    assert anatomy(PROGRAM).definition_of("scale").kind == "kernel"


def test_triton_has_its_names():
    source = "import triton\nimport triton.language as tl\n\n\n@triton.jit\ndef add(x, n: tl.constexpr):\n    i = tl.program_id(0)\n"
    names = dict(reversed(part) for part in highlighted_lines(source)[6])
    assert names["tl"] == "nn" and names["program_id"] == "nb"
    assert anatomy(source).definition_of("add").kind == "kernel"


def test_lines_from_the_middle_have_the_colours_of_the_whole():
    for path in (ROOT / "webapp/diffs/anatomy.py", ROOT / "agents/run.py", Path(__file__)):
        source = path.read_text()
        if any(piece.native for piece in anatomy(source).pieces):
            continue
        whole: list[list[str]] = [[]]
        for _, kind, text in PythonLexer().get_tokens_unprocessed(source):
            for index, part in enumerate(text.split("\n")):
                if index:
                    whole.append([])
                whole[-1] += [_class_of(kind)] * len(part)
        colours = Colours(source)
        for number in range(len(colours.plain), 0, -7):
            assert [name for name, text in colours.line(number) for _ in text] == whole[number - 1], (path, number)


def test_unfinished_sources_are_shown():
    for source in (
        'x = """\nint64_t a;',
        "def (",
        'a = """#include <x>\nvoid f() {',
        "",
        "\n\n",
        "'''",
        'r"""__global__ void k() {}""" + """__device__',
    ):
        assert ["".join(text for _, text in line) for line in highlighted_lines(source)] == source.split("\n")


def test_large_sources_come_without_colours():
    assert highlighted_lines("x = 1\n" * 400_000)[0] == [("", "x = 1")]
