"""A repair sees how the best program computes the state entries that the failed one got wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from test_requests import H200, passed, situation

from agents.roles import best_program
from agents.roles.best_program import best_text
from agents.roles.compiled import Compiled
from agents.roles.shortening import kernel_text
from compiler import Options, make_plan
from verifier.parties.capturing.capture import capture
from verifier.report import Trial, WrongTensor

KERNEL = "__global__ void batch_norm_kernel(float* out) {\n    out[0] = 1.0f;\n}\n"
SOURCE = f'SOURCE = r"""\n// batch norm\n{KERNEL}\nextern "C" int norm(float* out) {{\n    return 0;\n}}\n"""\n'


@pytest.fixture(scope="module")
def normed():
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8))
    return capture(model, [torch.randn(4, 8)], "a task", "train")


def tried(normed, monkeypatch, trial: Trial):
    best, failed = passed(1), passed(2)
    best.edit = replace(best.edit, source=SOURCE, options=Options())
    failed.report.status, failed.report.trials = "wrong_result", [trial]
    plan = make_plan(normed, "a task", H200, "fp32-strict")
    norm = next(group for group in plan.groups if "batch norm" in group.kinds)
    monkeypatch.setattr(best_program, "groups_of_kernels", lambda *given: {"batch_norm_kernel(float*)": [norm]})
    return situation(best, failed, plan=Compiled(plan, H200), capture=normed), norm


def test_the_kernel_that_writes_a_wrong_buffer_is_shown_with_what_leads_to_it(normed, monkeypatch):
    entry = WrongTensor(name="1.running_var", wrong=1, elements=8, first=[2], value="1", expected="2", error=2e-4, bound=1e-4)
    other = entry.model_copy(update={"name": "1.running_mean"})
    known, norm = tried(normed, monkeypatch, Trial(name="state after the timed calls", seed=0, ok=False, wrong=[entry, other]))
    said = best_text(known)
    assert f"- 1.running_var, 1.running_mean: written by {norm.id} batch norm, which follows " in said and " linear. Its kernel there:" in said
    assert KERNEL.strip() in said and said.count("Its kernel there") == 1, "buffers of one group share its kernel"


def test_an_old_report_names_the_buffer_in_its_text_alone(normed, monkeypatch):
    trial = Trial(
        name="state after the timed calls", seed=0, ok=False, detail="1.running_var was not updated as the task does: 1 of 8 elements is off"
    )
    assert "- 1.running_var: written by " in best_text(tried(normed, monkeypatch, trial)[0])


def test_a_wrong_output_has_no_writer(normed, monkeypatch):
    trial = Trial(name="negative", seed=0, ok=False, detail="out: 1 of 8 elements is off")
    assert "written by" not in best_text(tried(normed, monkeypatch, trial)[0])


def test_a_kernel_is_found_by_name_unless_it_is_long_or_has_a_namesake():
    assert kernel_text(SOURCE, "batch_norm_kernel") == KERNEL.strip() and kernel_text(SOURCE, "other_kernel") == ""
    assert kernel_text(SOURCE, "batch_norm_kernel", most=20) == "" and kernel_text(SOURCE + KERNEL, "batch_norm_kernel") == ""
