import re

import pytest
import torch

from compiler import DeviceFigures, Options
from tests.unit.compiler.loading import load

CACHE = "torch.randn(4, 8, 64, 16)"
BUFFER = "self.register_buffer('cache', torch.randn(4, 8, 64, 16))"
READ = "return (c * 2).sum(-1)"
ROWS = "r = torch.arange(4, device=c.device)\n"
AT = "torch.tensor([3, 60, 7, 3])"

# forms of writes: forward's body, inputs, arguments, and the statements that the program must contain
WRITES = {
    "None dims": (f"{ROWS}c[r, :, p] = k\n{READ}", f"{CACHE}, torch.randn(4, 8, 16), {AT}", "c, k, p", ["index_put_.default(c", ", None, p], k)"]),
    "index_copy": (f"c.index_copy_(2, p, k)\n{READ}", f"{CACHE}, torch.randn(4, 8, 2, 16), {AT}[1:3]", "c, k, p", ["index_put_.default(c"]),
    "accumulate": (
        f"c.index_put_((p,), k, accumulate=True)\n{READ}", f"{CACHE}, torch.randn(3, 8, 64, 16), torch.tensor([1, 3, 1])", "c, k, p", [],
    ),
    "index_add": (f"c.index_add_(2, p, k)\n{READ}", f"{CACHE}, torch.randn(4, 8, 4, 16), {AT}", "c, k, p", []),
    "scatter": (
        f"c.scatter_(2, p, k)\n{READ}", f"{CACHE}, torch.randn(4, 8, 1, 16), torch.randint(64, (4, 8, 1, 16))", "c, k, p", ["c.scatter_(2, p, k)"],
    ),
    "scatter a number": (f"c.scatter_(2, p, 0.5)\n{READ}", f"{CACHE}, torch.randint(64, (4, 8, 2, 16))", "c, p", ["c.scatter_(2, p, 0.5)"]),
    "index_fill": (f"c.index_fill_(1, p, 0.5)\n{READ}", f"{CACHE}, torch.tensor([1, 5])", "c, p", ["index_put_.default(c"]),
    "a mask": (f"c[m] = 0\n{READ}", f"{CACHE}, torch.rand(4, 8) > 0.5", "c, m", ["index_put_.default(c, [m]"]),
    "a slice": (f"c[:, :, 5:7] = k\n{READ}", f"{CACHE}, torch.randn(4, 8, 2, 16)", "c, k", ["c[:, :, 5:7] = k"]),
    "a slice from the end": (f"c[:, :, -2:] = k\n{READ}", f"{CACHE}, torch.randn(4, 8, 2, 16)", "c, k", ["c[:, :, 62:64] = k"]),
    "a slice with steps": (f"c[:, :, 2:34:8] = k\n{READ}", f"{CACHE}, torch.randn(4, 8, 4, 16)", "c, k", ["c[:, :, 2:34:8] = k"]),
    "a region": (f"c[1:3, :, 5:7] = k\n{READ}", f"{CACHE}, torch.randn(2, 8, 2, 16)", "c, k", ["c[1:3, :, 5:7] = k"]),
    "a computed part": (f"c[:, :, 5:7] = (k + 1).relu() * 2\n{READ}", f"{CACHE}, torch.randn(4, 8, 2, 16)", "c, k", ["c[:, :, 5:7] = "]),
    "a part computed from the old contents": (
        f"c[:, :, 5:7] = c[:, :, 7:9] * 2 + k\n{READ}", f"{CACHE}, torch.randn(4, 8, 2, 16)", "c, k", ["c[:, :, 5:7] = "],
    ),
    "one position": (f"c[:, :, 5] = k\n{READ}", f"{CACHE}, torch.randn(4, 8, 16)", "c, k", ["c[:, :, 5:6] = k.unsqueeze(2)"]),
    "one position from the end": (f"c[..., -1, :] = k\n{READ}", f"{CACHE}, torch.randn(4, 8, 16)", "c, k", ["c[:, :, 63:64] = k.unsqueeze(2)"]),
    "one position of two axes": (f"c[2, :, 5] = k\n{READ}", f"{CACHE}, torch.randn(8, 16)", "c, k", ["c[2:3, :, 5:6] = "]),
    "a slice and a position": (f"c[:2, 3, 5:9] = k\n{READ}", f"{CACHE}, torch.randn(2, 4, 16)", "c, k", ["c[0:2, 3:4, 5:9] = "]),
    "a slice of a slice": (f"c[:, :, 8:40][:, :, 5:7] = k\n{READ}", f"{CACHE}, torch.randn(4, 8, 2, 16)", "c, k", ["c[:, :, 13:15] = k"]),
    "an added part": (f"c[:, :, 5:7] += k\n{READ}", f"{CACHE}, torch.randn(4, 8, 2, 16)", "c, k", ["c[:, :, 5:7] = add"]),
    "a part of the whole": ("c[:, :, 5:7] = c[:, :, 6:8]\nreturn (c * k).sum(-1)", f"{CACHE}, torch.randn(16)", "c, k", ["c[:, :, 6:8].clone()"]),
    "one layer": (
        f"c[2, torch.arange(8, device=c.device), p] = k\n{READ}", f"{CACHE}, torch.randn(8, 16), torch.randint(64, (8,))", "c, k, p",
        ["index_put_.default(c.select(0, 2), ["],
    ),
    "layer after layer": (
        "for n in range(4):\n    c[n, :, p] = k\n    k = k + c[n].mean(1)\nreturn k", f"{CACHE}, torch.randn(8, 16), torch.tensor(3)", "c, k, p",
        [f"index_put_.default(c.select(0, {n}), [None, p], " for n in range(4)],
    ),
    "rows of one position": (
        f"c[p, :, 3] = k\n{READ}", f"{CACHE}, torch.randn(2, 8, 16), torch.tensor([3, 0])", "c, k, p", ["index_put_.default(c.select(2, 3), [p], k)"],
    ),
    "a scatter to a slice": (
        f"c[1:3].scatter_(2, p, k)\n{READ}", f"{CACHE}, torch.randn(2, 8, 1, 16), torch.randint(64, (2, 8, 1, 16))", "c, k, p",
        ["c[1:3].scatter_(2, p, k)"],
    ),
    "rows of another shape": (
        f"c.view(32, 64, 16)[:, p] = k\n{READ}", f"{CACHE}, torch.randn(32, 2, 16), torch.tensor([1, 3])", "c, k, p",
        ["index_put_.default(c.view(32, 64, 16), [None, p], k)"],
    ),
    "slots of pages": (
        f"c.flatten(0, 1).index_copy_(0, p, k)\n{READ}", f"{CACHE}, torch.randn(2, 64, 16), torch.tensor([31, 3])", "c, k, p",
        ["index_put_.default(c.", "[p], k)"],
    ),
    "two writes": (
        f"{ROWS}c[r, :, p] = k\nc[:, :, 9:10] = k[:, :, None] * 2\n{READ}", f"{CACHE}, torch.randn(4, 8, 16), {AT}", "c, k, p",
        ["index_put_.default(c", "c[:, :, 9:10] = "],
    ),
    "a read between two writes": (
        f"{ROWS}c[r, :, p] = k\ny = c.sum(2)\nc[:, :, 9:10] = y[:, :, None] * 2\n{READ} + y.sum(-1, keepdim=True)",
        f"{CACHE}, torch.randn(4, 8, 16), {AT}", "c, k, p", ["index_put_.default(c", "c[:, :, 9:10] = "],
    ),
    "the old contents read before": (
        f"{ROWS}y = c.exp().sum(-1)\nc[r, :, p] = k\nreturn y + c.sum(-1)", f"{CACHE}, torch.randn(4, 8, 16), {AT}", "c, k, p",
        ["index_put_.default(c"],
    ),
}  # fmt: skip
COPIED = re.compile(r"empty_like\(c\)|\b(c|self\.cache)\.(clone|contiguous)\(|torch\.empty\(\(4, 8, 64, 16\)")  # memory for the whole


def forward_of(text: str) -> str:
    return text.partition("class ModelNew")[2]


@pytest.mark.parametrize("name", WRITES)
def test_input(compiled, task, name):
    body, inputs, arguments, statements = WRITES[name]
    found = compiled(task(body, inputs, arguments=arguments))
    written = forward_of(found.text)
    assert all(statement in written for statement in statements), written
    assert "if c is not original_c:" in written and not COPIED.search(written)
    assert written.count(".copy_(") == 1
    found.check()


@pytest.mark.parametrize("name", WRITES)
def test_buffer(compiled, task, name):
    body, inputs, arguments, statements = WRITES[name]
    found = compiled(task(f"c = self.cache\n{body}", inputs.removeprefix(f"{CACHE}, "), BUFFER, arguments.removeprefix("c, ")))
    written = forward_of(found.text)
    assert all(re.sub(r"\bc(?=[\[,.]|$)", "self.cache", statement) in written for statement in statements), written
    assert ".copy_(" not in written and not COPIED.search(written)
    found.check()


def test_input_that_changes_further(compiled, task):
    found = compiled(task("c[:, :, 5:7] = k\ny = c.sum(-1)\nc.mul_(2)\nreturn y", f"{CACHE}, torch.randn(4, 8, 2, 16)", arguments="c, k"))
    written = forward_of(found.text)
    assert "c[:, :, 5:7] = k" in written and "    original_c.copy_(" in written and "if c is not" not in written
    found.check()


def test_two_inputs(compiled, task):
    body = f"{ROWS}c[r, :, p] = k\nd[r, :, p] = k * 2\nreturn (c * d).sum(-1)"
    found = compiled(task(body, f"{CACHE}, {CACHE}, torch.randn(4, 8, 16), {AT}", arguments="c, d, k, p"))
    written = forward_of(found.text)
    assert "index_put_.default(c" in written and "index_put_.default(d" in written
    found.check()


def test_state_moves_on(compiled, task):
    body = "self.cache[:, :, 5:6] = self.cache[:, :, 6:7] * 0.5 + self.cache[:, :, 5:6] + k\nreturn self.cache.sum(-1)"
    found = compiled(task(body, "torch.randn(4, 8, 1, 16)", BUFFER, "k"))
    program, model = load(found.text, "program")["ModelNew"](), found.twin()
    program.load_state_dict(model.state_dict())
    for _ in range(3):
        assert torch.allclose(program(*found.inputs), model(*found.inputs), rtol=1e-4, atol=1e-4)
        assert torch.allclose(program.cache, model.cache)


def test_input_in_another_layout(compiled, task):
    found = compiled(task(f"c[:, :, 5:7] = k\n{READ}", f"{CACHE}, torch.randn(4, 8, 2, 16)", arguments="c, k"))
    program, whole, k = load(found.text, "program")["ModelNew"](), torch.randn(64, 8, 4, 16), torch.randn(4, 8, 2, 16)
    mine, other = whole.clone().transpose(0, 2), whole.clone().transpose(0, 2)
    assert torch.allclose(program(mine, k), found.model(other, k), rtol=1e-5, atol=1e-5)
    assert torch.equal(mine, other)


def test_buffer_in_another_layout(compiled, task):
    init = "self.register_buffer('cache', torch.randn(64, 8, 4, 16).transpose(0, 2))"
    found = compiled(task("self.cache[:, :, 5:7] = k\nreturn (self.cache * 2).sum(-1)", "torch.randn(4, 8, 2, 16)", init, "k"))
    assert "self.cache[:" not in forward_of(found.text)
    found.check()


KEPT = {
    "the old contents are read afterwards": "d = torch.slice_scatter(c, k, 2, 5, 7)\nz = d.exp()\ny = (c * z).sum(-1)\nc.copy_(z)\nreturn y",
    "the new contents are returned": "c[:, :, 5:7] = k\nreturn c",
    "a view of the new contents is returned": "c[:, :, 5:7] = k\nreturn c.transpose(1, 2), k + 1",
    "most of it is written": "c[:, :, 2:] = k.sum()\nreturn (c * 2).sum(-1)",
    "nothing is changed": "d = torch.slice_scatter(c, k, 2, 5, 7)\nreturn (d * 2).sum(-1)",
}


@pytest.mark.parametrize("why", KEPT)
def test_left_as_a_copy(compiled, task, why):
    found = compiled(task(KEPT[why], f"{CACHE}, torch.randn(4, 8, 2, 16)", arguments="c, k"))
    written = forward_of(found.text)
    assert not re.search(r"c\[.*\] = ", written) and "if c is not original_c" not in written, written
    found.check()


def test_the_layer_is_read_before_it_is_put_back(compiled, task):
    """The library changes a copy of the layer, because the old contents are still read."""
    body = "d = c[2].index_put((p,), k)\ny = (c[2] * d).sum(-1)\nc[2] = d\nreturn y"
    found = compiled(task(body, f"{CACHE}, torch.randn(1, 64, 16), torch.tensor([3])", arguments="c, k, p"))
    assert "index_put_." not in forward_of(found.text)
    found.check()


def test_parts(compiled, task):
    branch = "if y.sum().item() > 0:\n    y = y + 1"
    body = f"c[:, :, 5:7] = k\ny = (c * 2).sum(-1)\n{branch}\nc[:, :, 9:10] = y[:, :, 9:10, None]\nreturn (c * 3).sum(-1) + y"
    found = compiled(task(body, f"{CACHE}, torch.randn(4, 8, 2, 16)", arguments="c, k"))
    assert found.plan.captured.parts
    assert all(f"[:, :, {at}] = " in forward_of(found.text) for at in ("5:7", "9:10"))
    program, (c, k) = load(found.text, "program")["ModelNew"](), found.inputs
    for sign in (1, -1):
        mine, other = c.clone() * sign, c.clone() * sign
        assert torch.allclose(program(mine, k), found.model(other, k), rtol=1e-4, atol=1e-4)
        assert torch.allclose(mine, other, rtol=1e-4, atol=1e-4)


def test_recorded(compiled, task):
    """A CUDA graph records the write; the writes of the calls before the recording are undone."""
    source = task(f"{ROWS}c[r, :, p] = k\n{READ}".replace("c[", "self.cache[").replace("c.device", "k.device").replace("(c", "(self.cache"),
                  f"torch.randn(4, 8, 16), {AT}", BUFFER, "k, p")  # fmt: skip
    found = compiled(source, figures=DeviceFigures.h200(), options=Options().with_strategy("cuda-graph"))
    body, _, record = forward_of(found.text).partition("def record")
    assert "index_put_.default(self.cache, [" in body and "state = [self.cache]" in record and ".copy_(before)" in record


def test_only_changed_elements_count(compiled, task):
    body, inputs, arguments, _ = WRITES["None dims"]
    found = compiled(task(body, inputs, arguments=arguments))
    group = next(group for group in found.plan.groups if "index_put" in group.operators)
    assert group.space == "pytorch" and group.reason == "written in place: only the changed elements move"
    assert group.bytes == 2 * 4 * 8 * 16 * 4 + 2 * 4 * 8  # the part is read and written, and two indices are read


def test_streams_that_overlap(compiled, task):
    """Another stream may still be reading the old contents."""
    body, inputs, arguments, _ = WRITES["None dims"]
    found = compiled(task(body, inputs, arguments=arguments), options=Options().with_strategy("overlap-streams"))
    assert "index_put_" not in forward_of(found.text)
    found.check()


def test_cuda(compiled, task):
    body, inputs, arguments, _ = WRITES["None dims"]
    found = compiled(task(body, inputs, arguments=arguments), figures=DeviceFigures.h200())
    assert "index_put_.default(c" in found.text and "if c is not original_c:" in found.text
