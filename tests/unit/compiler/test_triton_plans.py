"""Plans for Triton: the program's layout, its moves and tunable parameters, and what it refers to by name from level 1."""

import ast

import pytest

from bench.in_triton import command, main, names, share, table
from compiler import DeviceFigures, Options, make_plan, moves, print_program
from compiler.planning.knobs import numbers, with_numbers
from tests.unit.compiler.test_moves import report


@pytest.fixture
def planned(compiled, task):
    def make(body: str, inputs: str, init: str = "pass"):
        found = compiled(task(body, inputs, init))
        return found.source, make_plan(found.capture, found.source, DeviceFigures.h200(), language="triton")

    return make


def test_a_program_in_triton_says_so_and_needs_no_helper(planned):
    source, plan = planned("return F.softmax(x, 1) * 2", "torch.randn(64, 300)")
    text = print_program(plan, source, Options())
    assert plan.language == "triton" and text.startswith('"""Kernels in Triton')
    assert "stitch_build" not in text and "data_ptr() +" not in text and "launch_softmax_mul(x, mul)" in text


def test_no_name_of_a_kernel_hides_one_of_triton(planned):
    """Parameters whose names the kernel itself uses are renamed."""
    init = "self.row = nn.Parameter(torch.randn(300))\nself.tl = nn.Parameter(torch.randn(300))"
    source, plan = planned("return torch.sigmoid(x * self.row + self.tl).sum(1)", "torch.randn(64, 300)", init)
    kernel = next(n for n in ast.parse(print_program(plan, source, Options())).body if isinstance(n, ast.FunctionDef) and n.name.endswith("_kernel"))
    assert not {"row", "tl", "libdevice"} & {argument.arg for argument in kernel.args.args}


def test_moves_and_numbers_print_other_programs_and_one_kernel_stays(planned):
    source, plan = planned("return F.softmax(x, 1), x.sum(1)", "torch.randn(64, 50000)")
    first = print_program(plan, source, Options())
    offered = moves(plan, Options(), report(9.0, 5.0), None)
    assert {"parallel-split", "block-size"} >= {move.strategy for move in offered} and offered
    assert all(print_program(plan, source, move.options) != first for move in offered)
    known = numbers(plan, source, Options())
    assert {"block", "warps"} <= {number.name.rpartition(".")[2] for number in known}
    for number in known:
        for value in number.values:
            text = print_program(plan, source, with_numbers(Options(), known, {number.name: value}))
            assert (text != first) is (value != number.value), (number, value)


def test_convolutions_stay_with_the_library(planned):
    _, plan = planned("return torch.relu(self.conv(x))", "torch.randn(2, 3, 16, 16)", "self.conv = nn.Conv2d(3, 32, 3)")
    assert [group.space for group in plan.groups] == ["library", "own kernel"]


def test_the_named_tasks_are_forty_and_shards_share_them(tmp_path):
    tasks = names()
    assert len(tasks) == len(set(tasks)) == 40
    assert sorted(task for at in range(3) for task in share(tasks, f"{at}/3")) == sorted(tasks)
    with pytest.raises(SystemExit):
        main(["run", str(tmp_path), "--keep", str(tmp_path), "--shard", "3/3"])
    assert "0 of 40 tasks passed" in table({}, "cuda-h200") and callable(command)


def test_a_report_of_nothing_says_what_is_missing(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["report", str(tmp_path), "--results", str(tmp_path)])
    assert "holds no kernelbench.json" in capsys.readouterr().err and not list(tmp_path.iterdir())
