"""Frames, layouts, stored artefacts and statistics: what a hostile peer might send, and what must happen then."""

from __future__ import annotations

import struct

import pytest
import torch

from verifier.build.store import Artefacts, Store, checked_index, compiler_problems, trimmed
from verifier.channel import HEADER, Channel, ChannelClosed, ChannelError, ChannelTimeout, pair
from verifier.layout import LayoutError, Spec, decode, describe, encode, leaf_names, place, read_specs, view


@pytest.fixture
def ends():
    left, right = pair()
    yield left, Channel(right)
    left.close()
    right.close()


def test_a_frame_arrives_whole(ends):
    left, right = ends
    Channel(left).send({"a": 1}, b"xyz")
    frame = right.receive(1, max_raw=3)
    assert frame.message == {"a": 1} and frame.raw == b"xyz"


@pytest.mark.parametrize(
    "data",
    [
        HEADER.pack(1 << 31, 0),
        HEADER.pack(2, 1 << 40) + b"{}",
        HEADER.pack(2, 0) + b"[]",
        HEADER.pack(3, 0) + b"\xff\xfe{",
        HEADER.pack(200_000, 0) + b"[" * 200_000,
    ],
)
def test_a_hostile_frame_is_refused(ends, data):
    left, right = ends
    left.sendall(data)
    with pytest.raises(ChannelError):
        right.receive(2)


def test_silence_and_absence_are_told_apart(ends):
    left, right = ends
    left.sendall(struct.pack("<I", 5))
    with pytest.raises(ChannelTimeout):
        right.receive(0.05)
    left.close()
    with pytest.raises(ChannelClosed):
        right.receive(1)


def test_values_cross_unchanged():
    value = [torch.rand(3, 4).T, {"n": 2, "f": (torch.arange(3), None)}, torch.float32, [1.5, "x", True]]
    tensors: list[torch.Tensor] = []
    tree = encode(value, tensors)
    specs = [Spec.of(tensor) for tensor in tensors]
    offsets, end = place(specs)
    memory = torch.zeros(end, dtype=torch.uint8)
    for tensor, spec, offset in zip(tensors, specs, offsets, strict=True):
        view(memory, spec, offset).copy_(tensor)
    back = decode(tree, [view(memory, spec, offset) for spec, offset in zip(specs, offsets, strict=True)])
    assert torch.equal(back[0], value[0]) and back[0].stride() == value[0].stride()
    assert torch.equal(back[1]["f"][0], torch.arange(3)) and back[2] is torch.float32 and back[3] == [1.5, "x", True]
    assert leaf_names(encode((torch.ones(1), {"y": torch.ones(1)}), [])) == ["out[0]", "out[1]['y']"]
    assert describe(encode([torch.ones(1)], [])) == describe(encode((torch.ones(1),), []))


@pytest.mark.parametrize(
    "specs",
    [
        "x",
        [{"shape": [-1], "dtype": "float32"}],
        [{"shape": [2], "dtype": "object"}],
        [{"shape": [1 << 40, 1 << 40], "dtype": "float64"}],
        [{"shape": [2, 2], "dtype": "float32", "stride": [0, 0]}],
        [{"shape": [2, 2], "dtype": "float32", "stride": [100, 1]}],
    ],
)
def test_unsound_specs_are_refused(specs):
    with pytest.raises(LayoutError):
        read_specs(specs)


def test_a_view_beyond_its_arena_is_refused():
    with pytest.raises(LayoutError):
        view(torch.zeros(16, dtype=torch.uint8), Spec(shape=(5,), dtype="float32"), 0)


@pytest.mark.parametrize("name", ["../x.so", "/etc/x.so", "a/b/c.so", "a/../x.so", "x.py", "-", ".so"])
def test_unsound_names_of_libraries_are_refused(name):
    with pytest.raises(ValueError, match="builder"):
        checked_index([[name, 1]], 1)


def test_artefacts_are_kept_by_content(tmp_path):
    store = Store(tmp_path, "g++ 12")
    artefacts = Artefacts([("a.so", 3)], b"abc", 0.5)
    store.put("p", artefacts)
    assert store.get("p") == artefacts and store.get("q") is None
    assert Store(tmp_path, "g++ 13").get("p") is None
    (tmp_path / store.key("p") / "libraries").write_bytes(b"abd")
    assert store.get("p") is None


def test_compiler_text_is_cut_to_errors_with_the_program_line():
    program = 'X = 1\nSOURCE = r"""\nint f() {\n  return missing;\n}\n"""\n'
    text = "k.cpp:1:1: warning: w\n  1 | x\nk.cpp: In function 'int f()':\nk.cpp:3:10: error: 'missing' was not declared\n    3 |   return missing;\n"
    assert "warning" not in trimmed(text) and "missing" in trimmed(text)
    assert compiler_problems(text, program)[0].line == 4


def test_errors_without_a_place_are_said_once_and_first():
    """The assembler repeats the same message for every instruction, and the linker names no line."""
    feature = "ptxas /tmp/k.ptx, line {}; error   : Feature 'cp.async' requires .target sm_80 or higher"
    text = "\n".join(["nvcc failed:", *(feature.format(n) for n in range(221, 260)), "ptxas fatal   : Ptx assembly aborted due to errors"])
    kept = trimmed(text)
    assert kept.count("cp.async") == 1 and "(and 38 more)" in kept and "aborted" in kept
    assert compiler_problems(kept, "X = 1\n")[0].message.startswith("Feature 'cp.async' requires .target sm_80 or higher")
    linker = "/usr/bin/ld: /tmp/k.o: in function `run':\nk.cpp:(.text+0x1a): undefined reference to `missing()'\ncollect2: error: ld returned 1"
    assert compiler_problems(trimmed(linker), "X = 1\n")[0].message == "undefined reference to `missing()'"
    assert (
        compiler_problems("nvcc fatal   : Unsupported gpu architecture 'compute_35'", "X = 1\n")[0].message
        == "Unsupported gpu architecture 'compute_35'"
    )
