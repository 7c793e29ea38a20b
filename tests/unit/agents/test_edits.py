"""Edits: whole files and search/replace blocks, applied exactly or refused with the block, its location and the number of matches."""

from __future__ import annotations

import pytest
from agent_fakes import TASK

from agents.llm.messages import Reply
from agents.roles.edits import MARKER, UnusableReply, folded, helper, read_program, signed, unfolded, unsigned

PROGRAM = """import torch
import torch.nn as nn

SCALE = 2


class ModelNew(nn.Module):
    def forward(self, x):
        y = x * SCALE
        return torch.softmax(x, dim=-1)
"""


def block(search: str, replace: str) -> str:
    return f"<<<<<<< SEARCH\n{search}\n=======\n{replace}\n>>>>>>> REPLACE\n"


def read(text: str, present: str | None = PROGRAM, **more):
    return read_program(Reply(text=text, **more), TASK, present)


def refusal(text: str, present: str | None = PROGRAM, **more) -> str:
    with pytest.raises(UnusableReply) as caught:
        read(text, present, **more)
    return str(caught.value)


def test_a_whole_file_with_its_three_lines():
    changed = PROGRAM.replace("SCALE = 2", "SCALE = 3")
    written = read(
        f"TITLE: Scale by three\n**CHANGES:** the scale, since 3 > 2\nSTRATEGY: `row-cache`\n\nSome words.\n\n```python\n{changed}```\nDone."
    )
    assert (written.source, written.title, written.strategy, written.form) == (changed, "Scale by three", "row-cache", "whole file")
    assert written.changes == "the scale, since 3 > 2"
    assert read(changed).source == changed, "bare code is a program too"
    assert read(f"STRATEGY: none\n~~~py\n{changed}~~~").strategy == ""


def test_blocks_are_applied_exactly():
    written = read(block("SCALE = 2", "SCALE = 4") + "and\n" + block("        y = x * SCALE", "        y = x * SCALE * 2"))
    assert "SCALE = 4\n" in written.source and "SCALE * 2\n" in written.source and written.form == "2 blocks"
    assert read("```\n" + block("SCALE = 2", "SCALE = 4") + "```").form == "1 block", "a fence around blocks does no harm"
    gone = read(block("        y = x * SCALE", ""))
    assert "y = x" not in gone.source and "\n\n        return" not in gone.source


def test_a_block_that_does_not_fit_is_named():
    twice = PROGRAM + "\n\ndef other(x):\n    return x\n\n\ndef third(x):\n    return x\n"
    said = refusal(block("    return x", "    return 2 * x"), twice)
    assert "Block 1: its SEARCH matches 2 times (lines 14, 18" in said
    said = refusal(block("SCALE = 2", "SCALE = 3") + block("        y = x * SCALES", "        y = 0"))
    assert "Block 2" in said and "0 matches" in said and "line 9: `y = x * SCALE`" in said and "No block was applied" in said
    assert "differs from `y = x * SCALE` only in its indentation" in refusal(block("    y = x * SCALE", "    y = 0"))
    assert "not one after the other" in refusal(block("        y = x * SCALE\nSCALE = 2", "pass"))
    assert "SEARCH is empty" in refusal(block("", "x = 1"))
    assert "never closed by >>>>>>> REPLACE" in refusal("<<<<<<< SEARCH\nSCALE = 2\n=======\nSCALE = 3\n")
    assert "no line =======" in refusal("<<<<<<< SEARCH\nSCALE = 2\n>>>>>>> REPLACE\n")
    assert "no program yet" in refusal(block("SCALE = 2", "SCALE = 3"), None)


def test_part_of_a_line_is_no_match():
    assert "0 matches" in refusal(block("CALE = 2", "CALE = 3"))


def test_the_task_is_not_edited():
    line = next(line for line in TASK.splitlines() if line.strip().startswith("return"))
    assert "reference code, which may not be edited" in refusal(block(line, "        return x"), PROGRAM.replace(line.strip(), "return x"))
    assert "defines `Model`, which is the reference" in refusal("```python\nimport torch\nclass Model(torch.nn.Module):\n    pass\n```")
    assert "get_inputs" in refusal(f"```python\n{PROGRAM}\n\ndef get_inputs():\n    return []\n```")
    assert "names the file task.py" in refusal(f"```python task.py\n{PROGRAM.replace('2', '3')}```")


def test_other_wrong_files():
    assert "but the program is measured by `class ModelNew" in refusal("```python\nclass FastModel:\n    pass\n```")
    assert "only cpp" in refusal("```cpp\nint main() {}\n```")
    assert "neither a python fence nor" in refusal("I am sorry, I cannot do that.")
    assert "is empty" in refusal("")
    assert "which one is the program" in refusal(f"```python\n{PROGRAM}```\n```python\n{PROGRAM.replace('2', '3')}```")
    assert "never closed" in refusal(f"```python\n{PROGRAM}") and "cut off" in refusal(f"```python\n{PROGRAM}", finish="length")
    assert "nothing in it has changed" in refusal(f"```python\n{PROGRAM}```")


def test_python_must_parse_before_a_verification_is_spent():
    said = refusal("```python\n" + PROGRAM.replace("SCALE = 2", "SCALE = = 2") + "```")
    assert "not Python" in said and "line 4 `SCALE = = 2`" in said
    assert "not Python" in refusal(block("SCALE = 2", "SCALE ="))
    assert "null byte" in refusal(f"```python\n{PROGRAM}\0\n```").lower()


def test_placeholders_are_no_program_but_comments_are():
    assert "placeholder" in refusal("```python\n" + PROGRAM.replace("SCALE = 2", "SCALE = 3\n# ... rest of the code unchanged ...") + "```")
    assert "placeholder" in refusal("```python\n" + PROGRAM.replace("SCALE = 2", "SCALE = 3\n# remaining kernel unchanged") + "```")
    kept = PROGRAM.replace("SCALE = 2", "SCALE = 3  # the rest of the row\n# unchanged rows are skipped")
    assert read(f"```python\n{kept}```").source == kept


def test_the_build_helper_is_folded_away_and_put_back():
    source = f"import ctypes\n\nimport torch\n\n\n{helper()}\n\n\nlib = stitch_build('cpp', '')\n\n\nclass ModelNew(torch.nn.Module):\n    pass\n"
    assert MARKER in folded(source) and "subprocess" not in folded(source) and unfolded(folded(source)) == source
    bare = source.replace(helper(), "")
    assert helper() in unfolded(bare) and unfolded(bare).index("import torch") < unfolded(bare).index(helper()) < unfolded(bare).index("lib = ")
    assert unfolded(PROGRAM) == PROGRAM
    written = read(block("lib = stitch_build('cpp', '')", "lib = stitch_build('cpp', 'int x;')"), source)
    assert helper() in written.source and "int x;" in written.source


@pytest.mark.parametrize("model", ["tiny-1", "", "a b@c", "coder@3f\nimport os", "coder@", "@3f", "coder@3f#x", "c" * 200 + "@3f", "коder@3f"])
def test_only_a_policys_name_gets_into_a_program(model):
    assert signed(PROGRAM, "fast", model) == PROGRAM


def test_a_signature_is_one_line_however_often_a_program_is_signed():
    once = signed(PROGRAM, "fast", "/models/coder@3f2a1c9d04be-40")
    assert once == f"# Written by fast (/models/coder@3f2a1c9d04be-40)\n{PROGRAM}"
    again = signed(once, "other", "coder@main")
    assert again == f"# Written by other (coder@main)\n{PROGRAM}" and unsigned(again) == PROGRAM == unsigned(PROGRAM)
