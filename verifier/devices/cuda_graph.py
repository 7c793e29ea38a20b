"""The `cuda-graph` baseline: eager's own kernels launched as one graph, including the necessary copies of inputs and outputs."""

# sandboxed: calls the models that tasks define

from __future__ import annotations

import sys
from typing import Any

import torch
from torch.utils import _pytree as pytree

from verifier.layout import decode, encode
from verifier.parties.gradients import forward_backward
from verifier.parties.naming import resolver

WARM_UP = 3  # runs on a side stream; libraries choose algorithms and allocate memory before the capture


class Graphed:
    """Captures the graph at the first call. Later calls copy their inputs into the graph's input buffers, replay the graph, and copy the outputs out.
    Inputs that the model writes to, such as a cache that the caller owns, are copied back.

    Raises `RuntimeError` if the model cannot be captured (because it waits for the device, copies from the host, ...) or if it is called with other
    shapes.
    """

    def __init__(self, model: Any, backward: dict[str, Any] | None = None):
        self._orig_mod = model
        self.backward = backward
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, *inputs: Any) -> Any:
        given: list[torch.Tensor] = []
        tree = encode(list(inputs), given, whole=True)
        if self.graph is None:
            self._capture(tree, given)
        elif [(t.shape, t.dtype) for t in given] != [(t.shape, t.dtype) for t in self.static]:
            raise RuntimeError("the graph was captured for other shapes")
        for ours, theirs in zip(self.static, given, strict=True):
            ours.copy_(theirs)
        assert self.graph is not None
        self.graph.replay()
        for number in self.written:
            given[number].copy_(self.static[number])
        return decode(self.output_tree, [tensor.clone() for tensor in self.outputs])

    def _run(self, arguments: list[Any]) -> Any:
        return self._orig_mod(*arguments) if self.backward is None else forward_backward(self._orig_mod, arguments, self.backward)

    def _capture(self, tree: Any, given: list[torch.Tensor]) -> None:
        self.static = [tensor.clone() for tensor in given]
        arguments = decode(tree, self.static, resolve=resolver(sys.modules.get(type(self._orig_mod).__module__)))
        versions = [tensor._version for tensor in self.static]
        state = {name: value.clone() for name, value in self._orig_mod.state_dict().items() if isinstance(value, torch.Tensor)}
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                self._run(arguments)
        torch.cuda.current_stream().wait_stream(side)
        self.written = [number for number, tensor in enumerate(self.static) if tensor._version != versions[number]]
        self.held = tensors_of(self._orig_mod)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            output = self._run(arguments)
        self.outputs: list[torch.Tensor] = []
        self.output_tree = encode(output, self.outputs)  # objects are reduced to their fields, because only the fields are compared
        self.graph = graph
        with torch.no_grad():  # the warm-up changed running statistics, whereas the capture itself executed nothing
            for name, value in self._orig_mod.state_dict().items():
                if name in state:
                    value.copy_(state[name])


def tensors_of(model: torch.nn.Module) -> list[torch.Tensor]:
    """Returns all tensors that any attribute of the modules holds. A graph writes to these addresses in every replay, even if `forward` has replaced
    a tensor (`self.hidden = ...`). Without this reference, the memory of that tensor could be reused before the replay."""
    return [leaf for module in model.modules() for leaf in pytree.tree_leaves(dict(vars(module))) if isinstance(leaf, torch.Tensor)]
