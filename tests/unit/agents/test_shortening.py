"""Long programs are shown without the kernels that matter least, and these are restored in the reply."""

import tarfile
from pathlib import Path

import pytest

from agents.llm.messages import Reply
from agents.roles.edits import UnusableReply, read_program
from agents.roles.shortening import shortened

BODY = "".join(f"    out[{n}] = {n}.0f;\n" for n in range(40))
TASK = "import torch.nn as nn\n\n\nclass Model(nn.Module):\n    pass\n"


def kernel(name: str) -> str:
    launch = f"    {name}_kernel<<<1, 256, 0, (cudaStream_t)stream>>>(out);\n    return (int)cudaGetLastError();\n"
    return (
        f"// what {name} computes\n__global__ void __launch_bounds__(256) {name}_kernel(float* out) {{\n{BODY}}}\n"
        f'extern "C" int {name}(float* out, void* stream) {{\n{launch}}}\n\n'
    )


PROGRAM = (
    f'import torch.nn as nn\n\nSOURCE = r"""\n{kernel("first")}{kernel("second")}{kernel("third")}"""\n\n\nclass ModelNew(nn.Module):\n    pass\n'
)
TIMES = {"first_kernel": 9.0, "second_kernel": 1.0, "third_kernel": 5.0}


def test_a_short_program_is_shown_whole():
    assert shortened(PROGRAM, TIMES).text == PROGRAM and shortened(PROGRAM, TIMES).note() == ""


def test_the_kernels_with_the_least_time_are_left_out_and_named():
    shown = shortened(PROGRAM, TIMES, room=len(PROGRAM) - 100)
    assert list(shown.bodies) == ["second"] and "lines of second_kernel)" in shown.text and "// what second computes" in shown.text
    assert "first_kernel(float* out)" in shown.text and shown.restored(shown.text) == PROGRAM and "kept" in shown.note()


def test_what_an_order_names_comes_last():
    assert list(shortened(PROGRAM, TIMES, "widen second_kernel", room=len(PROGRAM) - 100).bodies) == ["third"]
    assert len(shortened(PROGRAM, TIMES, "widen second", room=0).bodies) == 3


def test_blocks_apply_to_what_was_shown_and_what_was_left_out_comes_back():
    shown = shortened(PROGRAM, TIMES, room=len(PROGRAM) - 100)
    text = "<<<<<<< SEARCH\n// what first computes\n=======\n// the first\n>>>>>>> REPLACE\n"
    assert read_program(Reply(text=text), TASK, PROGRAM, shown).source == PROGRAM.replace("// what first computes", "// the first")
    marker = next(line for line in shown.text.splitlines() if "(kept: " in line)
    gone = read_program(Reply(text=f"<<<<<<< SEARCH\n{marker}\n=======\n>>>>>>> REPLACE\n"), TASK, PROGRAM, shown).source
    assert "second_kernel" not in gone and "third_kernel" in gone


def test_a_whole_file_may_keep_the_line_and_may_not_make_one_up():
    shown = shortened(PROGRAM, TIMES, room=len(PROGRAM) - 100)
    edited = shown.text.replace("// what first computes", "// the first")
    assert "second_kernel<<<" in read_program(Reply(text=f"```python\n{edited}```\n"), TASK, PROGRAM, shown).source
    with pytest.raises(UnusableReply, match="stands for nothing"):
        read_program(Reply(text=f"```python\n{edited.replace('kept: second', 'kept: fourth')}```\n"), TASK, PROGRAM, shown)


HELPERS = "".join(f"struct {name} {{\n{BODY}}};\n\n" for name in ("Shared", "Lonely"))
HELPERS += "__device__ float brief(float x) { return x; }\n\n"  # closed on its own line: what follows is not part of it
FIRST = kernel("first").replace("out[0]", "Shared{}, out[0]")
SECOND = kernel("second").replace("// what second", "// second (line 3)\n// tiles, what second").replace("out[0]", "Lonely{}, out[0]")
LONG = f'SOURCE = r"""\n{HELPERS}{FIRST}{SECOND}"""\n'


def test_the_kernels_with_the_most_time_stay_and_helpers_of_those_left_out_go():
    shown = shortened(LONG, TIMES, room=len(LONG) * 2 // 3)
    assert list(shown.bodies) == ["second", "Lonely"] and shown.restored(shown.text) == LONG
    assert "first_kernel(float* out)" in shown.text and "struct Shared" in shown.text and "struct Lonely" not in shown.text
    assert "// second (line 3)\n// (kept: second, " in shown.text, "of the comment above a kernel its first line stays"
    assert "Coder can" in shown.note(edits=False) and "Keep the line" not in shown.note(edits=False)


def test_programs_of_real_runs_come_back_as_they_were():
    archive = Path(__file__).parents[3] / "bench" / "results" / "agents-strong.tar.gz"
    count = 0
    with tarfile.open(archive) as recorded:
        for member in recorded:
            if member.name.endswith("/programs/candidate-1.py"):
                program = recorded.extractfile(member).read().decode()
                for room in (36_000, 8_000, 0):
                    shown = shortened(program, {}, room=room)
                    assert shown.restored(shown.text) == program, (member.name, room)
                count += bool(shown.bodies)
    assert count >= 10
