"""A single reverted hunk: the facts that can be determined without a device."""

from __future__ import annotations

from tests.unit.webapp.diffs.programs import NEW, OLD
from webapp.diffs.compute import compute
from webapp.diffs.revert import Reverted, groups, judged, reverted_hunks, without


def reverted(old: str, new: str) -> list[Reverted]:
    return reverted_hunks(compute(old, new), old, new)


def test_each_hunk_alone():
    comment, attribute, work, copy, read = reverted(OLD, NEW)
    assert comment.status == "same" and "only comments" in comment.message
    assert attribute.status == "names" and "self.dimension" in attribute.message and "line 22" in attribute.message
    assert work.status == copy.status == read.status == ""
    assert "range(40)" in work.source and "clone" not in work.source
    assert "clone" in copy.source and "range(40)" not in copy.source


def test_documentation_and_comments_of_kernels_change_nothing():
    source = '"""One."""\nK = r"""\n#include <cstdint>\nint f() { return 1; } // one\n"""\n\n\nclass ModelNew:\n    x = "// one"\n'
    assert judged(source.replace('"""One."""', '"""Two."""'), source)[0] == "same"
    assert judged(source.replace("} // one", "} /* two */"), source)[0] == "same"
    assert judged(source.replace("return 1", "return 2"), source)[0] == ""
    assert judged(source.replace('"// one"', '"// two"'), source)[0] == ""
    assert judged("print(__doc__)\n" + source, "print(__doc__)\n" + source.replace("One.", "Two."))[0] in ("same", "")


def test_all_of_them_together_are_the_older_program():
    found = compute(OLD, NEW)
    assert without(OLD, NEW, found.hunks) == OLD and without(OLD, NEW, []) == NEW


def test_what_does_not_parse_without_it():
    old = NEW.replace("    def forward(self, x):\n", "    def forward(self,\n            x):\n")
    new = OLD + "\n\nclass Other:\n    pass\n"
    assert judged("def (:\n", new)[0] == "syntax"
    assert judged("x = 1\n", new) == ("syntax", judged("x = 1\n", new)[1]) and "ModelNew" in judged("x = 1\n", new)[1]
    assert {one.status for one in reverted(old, NEW)} <= {"same", "", "syntax"}


def test_a_name_that_only_the_hunk_defines():
    old = OLD
    new = OLD.replace("import torch.nn as nn\n", "import torch.nn as nn\nimport math\n").replace("a = x\n", "a = x * math.pi\n")
    first, second = reverted(old, new)
    assert first.status == "names" and "nothing defines math" in first.message
    assert second.status == ""
    assert judged("from math import *\nclass ModelNew:\n    x = pi\n", new)[0] == ""


def test_a_kernel_that_only_the_hunk_defines():
    kernels = 'SOURCE = r"""\n#include <cstdint>\nextern "C" void one(float* x) {\n    x[0] = 1;\n}\n"""\n\n\n\n\n'
    program = "class ModelNew:\n    def forward(self, x):\n        kernels.one(x)\n\n\nkernels = None\n"
    new = kernels.replace('}\n"""', '}\n\n\n\nextern "C" void two(float* x) {\n    x[0] = 2;\n}\n"""') + program.replace(
        "kernels.one(x)", "kernels.two(x)"
    )
    first, second = reverted(kernels + program, new)
    assert first.status == "names" and "nothing defines two" in first.message
    assert second.status == ""


def test_both_ends_of_a_move_are_reverted_together():
    block = "".join(f"def moved_{i}(argument):\n    return argument * {i}\n\n\n" for i in range(4))
    old, new = OLD + block, block + OLD
    found = compute(old, new)
    assert groups(found.hunks) == [(1, 2)]
    (only,) = reverted(old, new)
    assert only.members == (1, 2) and only.source == old
