"""Layouts of views compared with PyTorch's."""

import torch

from compiler.graph.layout import dense, reshape_strides, split, view


def agrees(layout, tensor: torch.Tensor) -> bool:
    sizes = [(size, mine, theirs) for size, mine, theirs in zip(tensor.shape, layout.strides, tensor.stride(), strict=True) if size != 1]
    return layout.shape == tuple(tensor.shape) and layout.offset == tensor.storage_offset() and all(a == b for _, a, b in sizes)


def test_views_compose():
    x, layout = torch.rand(4, 6, 8), dense("x", (4, 6, 8))
    steps = [
        ("aten.permute.default", [[2, 0, 1]], lambda t: t.permute(2, 0, 1)),
        ("aten.slice.Tensor", [0, 2, 8, 3], lambda t: t[2:8:3]),
        ("aten.unsqueeze.default", [-1], lambda t: t.unsqueeze(-1)),
        ("aten.expand.default", [[2, 4, 6, 5]], lambda t: t.expand(2, 4, 6, 5)),
        ("aten.select.int", [1, 3], lambda t: t.select(1, 3)),
        ("aten.transpose.int", [0, 2], lambda t: t.transpose(0, 2)),
        ("aten.unsqueeze.default", [0], lambda t: t.unsqueeze(0)),
        ("aten.squeeze.dim", [0], lambda t: t.squeeze(0)),
    ]
    for op, args, apply in steps:
        x = apply(x)
        layout = view(op, layout, args, tuple(x.shape))
        assert agrees(layout, x), op


def test_splits():
    x, layout = torch.rand(5, 12), dense("x", (5, 12))
    for op, args, parts in (
        ("aten.split_with_sizes.default", [[3, 4, 5], 1], x.split([3, 4, 5], 1)),
        ("aten.split.Tensor", [5, -1], x.split(5, -1)),
        ("aten.chunk.default", [5, 1], x.chunk(5, 1)),
        ("aten.unbind.int", [1], x.unbind(1)),
    ):
        for item, part in enumerate(parts):
            assert agrees(split(op, layout, args, item, tuple(part.shape)), part), op


def test_reshape_strides():
    x = torch.rand(4, 6, 8)
    for source, shape in ((x, (24, 8)), (x, (2, 2, 6, 8)), (x.transpose(0, 1), (6, 2, 2, 8)), (x[:, ::2], (4, 3, 2, 4)), (x[:1], (48,))):
        assert reshape_strides(tuple(source.shape), source.stride(), shape) == tuple(
            0 if size == 1 else step for size, step in zip(shape, source.view(shape).stride(), strict=True)
        )
    assert reshape_strides((6, 4, 8), (8, 48, 1), (24, 8)) is None
