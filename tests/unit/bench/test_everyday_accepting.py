"""Why KernelBench's own evaluation does not apply to a task of the everyday suite, and how its verdicts are recorded."""

from __future__ import annotations

import pytest

from bench.everyday.accepting import inapplicable, line, shaped, summary

TASK = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        self.register_buffer("seen", torch.zeros(1))
    def forward(self, x):
        return self.layer(x)
def get_init_inputs():
    return []
def get_inputs():
    return [torch.ones(2, 4)]
"""


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("", "", None),
        ("import torch\n", "import torch, no_such_package\n", "a package that is not installed: No module named 'no_such_package'"),
        ("return self.layer(x)", "return self.layer(x), x", "compares one tensor, and the model returns a tuple of 2"),
        ("return self.layer(x)", "return self.layer(x) + torch.rand(2, 4)", "another result in its second call"),
        ("return self.layer(x)", "self.seen += 1; return self.layer(x) + self.seen", "another result in its second call"),
        ("return self.layer(x)", "x.add_(1); return self.layer(x)", "changes its inputs in place"),
        ("return self.layer(x)", "return self.layer(x[0])", "inputs within a list or dict stay on the CPU"),
        ("return self.layer(x)", "return self.layer(x.float())", "casts every input to float32, and the task's are torch.int64 too"),
        ("torch.zeros(1)", "torch.zeros(1).half()", "its weights are torch.float16"),
        ("return self.layer(x)", "raise RuntimeError('CUDA error: an illegal memory access')", None),
    ],
)
def test_the_reference_shows_what_cannot_be_compared(tmp_path, old, new, reason):
    text = TASK.replace(old, new)
    if "x[0]" in new:
        text = text.replace("[torch.ones(2, 4)]", "[[torch.ones(2, 4)]]")
    if "x.float()" in new:
        text = text.replace("torch.ones(2, 4)", "torch.ones(2, 4, dtype=torch.int64)")
    (tmp_path / "task.py").write_text(text)
    found = inapplicable(tmp_path / "task.py", "cpu")
    assert (found == []) if reason is None else (len(found) == 1 and reason in found[0])


def test_a_refused_program_keeps_both_verdicts():
    first = shaped({"status": "refused", "message": "correctness_issue: Output mismatch", "reasons": []}, "abc", None, False)
    assert first["program"] == "abc"
    second = shaped({"status": "accepted", "message": "", "metadata": {"hardware": "H100"}}, "abc", first, True)
    rows = {
        "a": {**first, **second}, "b": first, "c": {"status": "accepted", "message": "", "reasons": []}, "e": {"status": "failed", "message": "died"},
        "d": {"status": "not applicable", "message": "runtime_error", "reasons": ["one", "two"]},
    }  # fmt: skip
    assert rows["a"]["status"] == "refused" and rows["a"]["exact"]["status"] == "accepted"
    found = summary(rows)
    assert (found["tasks"], found["accepted"], found["accepted_without_tf32"]) == (5, 1, ["a"])
    assert list(found["refused"]) == ["b"] and found["not_applicable"] == {"d": "one; two"} and found["other"] == {"e": "failed: died"}
    assert line("d", rows["d"]) == "d: not applicable: one; two"
