"""A captured model as data: the result of the job `capture`, and all that planners and compilers ever see of a task at run time.

It is the functional ATen graph of `torch.export` (after decompositions), with shapes, and with names that lead back to the module and
the line it came from. JSON only: nothing in it is ever unpickled or executed.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel

from verifier.task import TensorSpec


class Ref(BaseModel):
    """An argument that is the value of another node (or its item, for operators with several results)."""

    ref: str
    item: int | None = None


class Node(BaseModel):
    """`args` and `kwargs` hold JSON values; a tensor argument is `{"ref": name}` (a `Ref` as a dict), lists nest."""

    name: str
    op: str  # "aten.add.Tensor", or "getitem"
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    outputs: list[TensorSpec] = []  # one, or several for operators with several results
    module: str = ""  # qualified name of the module it came from, e.g. "net.0"
    module_class: str = ""  # e.g. "Linear"
    line: int | None = None  # in the task's source


class GraphInput(BaseModel):
    name: str
    kind: Literal["user", "parameter", "buffer", "constant"]
    target: str = ""  # state-dict name of a parameter or buffer
    spec: TensorSpec | None = None  # null for a non-tensor argument
    value: Any = None  # of a non-tensor argument, or of a small constant tensor as nested lists
    index: int | None = None  # position among the user's arguments
    keyword: str = ""  # the argument's name, where it is given by name
    path: str = ""  # its place in the argument, as Python to append to the name: `["mask"]`, `[0].weights`
    found: str = ""  # Python that reads what the task's own code holds, of `self` and names of its source; of weights, where `target` is none
    persistent: bool = True  # false for a buffer, or a plain attribute that is a tensor, outside the state dict

    @property
    def position(self) -> int:
        """Its position among the user's arguments."""
        assert self.index is not None, f"{self.name} is no argument of the user"
        return self.index

    @property
    def tensor(self) -> TensorSpec:
        """What is known about an input that is a tensor."""
        assert self.spec is not None, f"{self.name} is no tensor"
        return self.spec


class Part(BaseModel):
    """A captured run of forward's statements, where the whole was not captured. Its nodes are those of the graph between `first` and `end`."""

    name: str  # of the method that computes it
    line: int | None = None  # of its first statement, in the task's source
    inputs: list[str]  # names of the graph's inputs that it reads
    first: int
    end: int
    reads: dict[str, str]  # its inputs of kind "user" -> Python in terms of the variables of forward
    target: str  # what is done with its results: "y = ", "return "
    statements: str  # what it stands for, in Python
    output_tree: Any = None  # in terms of the graph's outputs


class Graph(BaseModel):
    inputs: list[GraphInput]
    nodes: list[Node]  # topologically sorted
    outputs: list[Any]  # leaves: {"ref": ...} or constants, in the order of `output_tree`
    output_tree: Any = None  # nested lists/dicts with leaf indices: 0, [0, 1], {"y": 0}; tuples are {"tuple": [...]}, other classes {"made": {...}}
    mutations: dict[str, str] = {}  # state-dict name -> node whose value it takes after forward
    mutated_inputs: dict[str, str] = {}  # input name -> node
    parts: list[Part] = []  # set where only parts of forward were captured
    forward: str = ""  # in that case, forward as Python, with a line `__part__("part_1")` for each part
    left: list[str] = []  # in that case, what is left to PyTorch, and why

    @property
    def recordable(self) -> bool:
        """Whether a CUDA graph of forward does all that forward does."""
        return not self.mutated_inputs and not self.parts


class Capture(BaseModel):
    """What the job `capture` returns. `graph` is null, with a reason, where torch.export could not capture the model."""

    task: str
    mode: str
    graph: Graph | None = None
    reason: str = ""
    flops: int | None = None  # of one forward call, by torch's FlopCounterMode
    bytes_min: int | None = None  # inputs + weights read once, outputs written once
    seconds: float = 0.0
