"""Tensors whose elements are not adjacent in the order of their axes, and tensors so large that a position needs 64 bits."""

import re

import pytest

from compiler import DeviceFigures, Options, make_plan, print_program
from compiler.families.product.matmul import MOST_BATCHES
from compiler.graph.ir import Access, Argument, Kernel, Op, Store
from compiler.kernel.shape import Shape
from compiler.targets.cuda.printing import CudaKernel
from compiler.targets.triton.printing import TritonKernel
from compiler.targets.triton.shape import TritonShape
from tests.emulator import as_cpp

H200 = DeviceFigures.h200()
TURNED = "self.w = nn.Parameter(torch.randn(70, 64).t())\nself.register_buffer('seen', torch.zeros(70, 64).t())"


def test_a_transposed_parameter_is_turned_around_once(compiled, task):
    body = "self.seen.add_(x.detach() * 0.5)\nreturn torch.relu(x * self.w + self.seen).sum(1)"
    found = compiled(task(body, "torch.randn(64, 70)", TURNED))
    assert found.text.count("self.w.contiguous()") == 1 and "def pack(self, device)" in found.text
    found.check()


def test_a_transposed_parameter_of_a_kernel_for_the_gpu(compiled, task):
    found = compiled(task("return torch.relu(x * self.w)", "torch.randn(64, 70)", TURNED), figures=H200)
    found.text = as_cpp(found.text)
    found.check()
    plan = make_plan(found.capture, found.source, H200, language="triton")
    assert "launch_mul_relu(x, packed[0], relu)" in print_program(plan, found.source, Options())


AS_IT_LAY = {
    "images with their channels innermost": (
        "h = x.contiguous(memory_format=torch.channels_last) * 2\ns = h.stride()\nreturn h.as_strided((2, 8, 3), (s[0], s[1], 2 * s[3])), h.exp()",
        "torch.randn(2, 8, 6, 6)",
    ),
    "windows of a sum": ("h = torch.tanh(x) + 1\nreturn h.as_strided((9, 4), (2, 1), 3) * 2", "torch.randn(30, 70)"),
    "a part of a sum": ("h = (torch.tanh(x) + 1)[2:]\nreturn h.as_strided((9, 4), (2, 1)) * 2", "torch.randn(30, 70)"),
}


@pytest.mark.parametrize("kind", AS_IT_LAY)
def test_as_strided_reads_memory_as_it_lay_in_the_model(compiled, task, kind):
    compiled(task(*AS_IT_LAY[kind])).check()


LIES_AS_ITS_IMAGE = {
    "a turned image": (
        "h = F.conv2d(x.permute(0, 3, 1, 2), y)\nreturn F.batch_norm(h, None, None, training=True).relu()",
        "torch.randn(2, 9, 11, 8)",
    ),
    "one convolution after another": (
        "h = F.conv2d(F.conv2d(x.permute(0, 3, 1, 2), y), z)\nreturn (h * 2).softmax(1)",
        "torch.randn(2, 9, 11, 8)",
    ),
    "a volume": ("h = F.conv3d(x.permute(0, 4, 1, 2, 3), y[..., None])\nreturn torch.tanh(h) * 2", "torch.randn(2, 5, 6, 7, 8)"),
}


@pytest.mark.parametrize("kind", LIES_AS_ITS_IMAGE)
def test_what_the_library_convolves_lies_as_its_image_does(compiled, task, kind):
    """A library convolution returns channels innermost if its image has them innermost; the kernel after it reads them in the order of the axes."""
    body, image = LIES_AS_ITS_IMAGE[kind]
    found = compiled(task(body, f"{image}, torch.randn(16, 8, 1, 1), torch.randn(12, 16, 1, 1)", arguments="x, y, z"))
    assert ".contiguous()" in found.text and found.plan.own, found.text
    found.check()


def test_views_without_axes(compiled, task):
    body = (
        "a = x.sum().expand(())\nb = x.mean().permute(())\nc = x[:1, :1].view(())\nreturn torch.nonzero(x > a * b * c), a, b, c, x[None].squeeze(())"
    )
    compiled(task(body, "torch.randn(30, 70)")).check()


def rows(length: int, stride: int, offset: int = 0) -> Kernel:
    """Returns a kernel that sums each of many adjacent rows, where the elements of a row are `stride` elements apart."""
    arguments = {
        "x": Argument("x", "x", "float32", offset + length * stride, read=True),
        "out": Argument("out", "out", "float32", 4096, written=True),
    }
    ops = {
        "x_i": Op("x_i", "load", (), "float32", "full", access=Access("x", (1, stride), offset)),
        "total": Op("total", "reduce", ("x_i",), "float32", "row", "sum"),
    }
    stores = [Store("total", "row", Access("out", (1, 0)))]
    return Kernel("sums", "sums", [4096, length], [0], [1], arguments, ops, stores)


@pytest.mark.parametrize(("length", "far"), [(4096, False), (1 << 20, True)])
def test_positions_in_triton_are_of_64_bits_where_a_row_reaches_that_far(length, far):
    text = TritonKernel(rows(length, 4096), TritonShape("rows", 256, rows=16)).text([])
    assert ("tl.arange(0, BLOCK)[None, :].to(tl.int64)" in text) is far
    assert ("tl.program_id(0).to(tl.int64)" in text) is far


@pytest.mark.parametrize(("offset", "kind"), [(0, "int"), (1 << 31, "long")])
def test_positions_in_cuda_count_where_the_row_begins(offset, kind):
    text = CudaKernel(rows(4096, 1, offset), Shape("rows")).text([])
    assert re.search(rf"const {kind} at = |for \({kind} \w+ = ", text), text


def test_more_products_than_a_grid_has_blocks_are_left_to_the_library(compiled, task):
    many = f"torch.ones(1, 1, 1).expand({MOST_BATCHES + 1}, 16, 16)"
    found = compiled(task("return torch.bmm(x, y)", f"{many}, {many}", arguments="x, y"), figures=H200)
    assert not found.plan.own and "65535" in found.plan.groups[0].reason


def test_windows_of_an_adaptive_pool_are_placed_in_64_bits_where_they_must_be(compiled, task):
    found = compiled(task("return F.adaptive_avg_pool1d(x, 8192)", "torch.randn(1, 1, 300000)"), figures=H200)
    assert "w_first = (long)w * 300000 / 8192, w_end = ((long)(w + 1) * 300000 + 8191) / 8192" in found.text
    assert "(long)w" not in compiled(task("return F.adaptive_avg_pool1d(x, 81)", "torch.randn(1, 1, 300)"), figures=H200).text


def test_what_the_library_lays_otherwise_is_cut_in_the_order_of_its_axes(compiled, task):
    body = "y = self.conv(x.permute(0, 3, 1, 2))\ns, i = torch.sort(y.permute(0, 2, 3, 1), -1)\n"
    body += "return s.reshape(2, -1, 2), i.flatten(1), torch.tanh(y) * 2"
    found = compiled(task(body, "torch.randn(2, 6, 6, 8)", "self.conv = nn.Conv2d(8, 16, 3, padding=1)"), figures=H200)
    assert "torch.sort(" in found.text and "conv2d(" in found.text
    found.text = as_cpp(found.text)
    found.check()
