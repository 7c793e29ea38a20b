"""A captured model as data. It is the result of the `capture` job. At run time, planners and compilers see nothing else of a task.

It is the functional ATen graph from `torch.export` (after decompositions), with shapes and with names that identify each node's module and source
line. It is pure JSON: nothing in it is ever unpickled or executed.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel

from verifier.task import TensorSpec

# Operators for rows in groups whose sizes become known only at run time. `ROUTED` takes (group number of each row, number of the first group, number
# of groups). It returns one vector with the positions of the rows in group order, their group numbers in this order, the start of each group, and the
# end of the last group. `GROUPED` takes (rows in this order, weights (groups, columns, depth), group boundaries). It multiplies each row by the
# weight of its group.
ROUTED, GROUPED = "stitch.routed", "stitch.grouped_linear"
ASSERTION = "aten._assert_async.msg"  # has no result; raises an error with its message if its condition is false


class Ref(BaseModel):
    """An argument that refers to another node's value (or to one item of it, for operators with several results)."""

    ref: str
    item: int | None = None


class Node(BaseModel):
    """One operator call. `args` and `kwargs` hold JSON values; a tensor argument is `{"ref": name}` (a `Ref` as a dict). Lists may be nested."""

    name: str
    op: str  # "aten.add.Tensor", "getitem", ROUTED or GROUPED
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    outputs: list[TensorSpec] = []  # one entry; several entries for operators with several results
    module: str = ""  # qualified name of the module that it came from, e.g. "net.0"
    module_class: str = ""  # e.g. "Linear"
    line: int | None = None  # source line in the task


class GraphInput(BaseModel):
    name: str
    kind: Literal["user", "parameter", "buffer", "constant"]
    target: str = ""  # state-dict name of a parameter or buffer
    spec: TensorSpec | None = None  # null for a non-tensor argument
    value: Any = None  # value of a non-tensor argument, or of a small constant tensor as nested lists
    index: int | None = None  # position among the user's arguments
    keyword: str = ""  # the argument's name if it is passed by keyword
    path: str = ""  # path to the input within the argument, as Python code to append to the name: `["mask"]`, `[0].weights`
    found: str = ""  # Python code that reads a value of the task's own code, via `self` and source names; for weights, only if there is no `target`
    persistent: bool = True  # false for a buffer, or for a plain tensor attribute, that is not in the state dict

    @property
    def position(self) -> int:
        """Returns the position of the input among the user's arguments."""
        assert self.index is not None, f"{self.name} is no argument of the user"
        return self.index

    @property
    def tensor(self) -> TensorSpec:
        """Returns the spec of a tensor input."""
        assert self.spec is not None, f"{self.name} is no tensor"
        return self.spec


class Part(BaseModel):
    """A captured run of statements from forward, used if the whole of forward could not be captured. It owns the graph's nodes from `first` up to
    `end`."""

    name: str  # name of the method that computes this part
    line: int | None = None  # line of the part's first statement in the task's source
    inputs: list[str]  # names of the graph inputs that the part reads
    first: int
    end: int
    reads: dict[str, str]  # inputs of kind "user" -> Python code in terms of forward's variables
    tests: list[str] = []  # conditions, as Python, besides those that follow from the inputs: the lengths of lists, the modules that variables hold
    target: str  # how the part's results are used: "y = ", "return "
    statements: str  # the Python statements that the part replaces
    output_tree: Any = None  # output structure of the part, in terms of the graph's outputs


class Graph(BaseModel):
    inputs: list[GraphInput]
    nodes: list[Node]  # topologically sorted
    outputs: list[Any]  # leaves in the order of `output_tree`: {"ref": ...} or constants
    output_tree: Any = None  # nested lists/dicts with leaf indices: 0, [0, 1], {"y": 0}; tuples are {"tuple": [...]}, other classes {"made": {...}}
    mutations: dict[str, str] = {}  # state-dict name -> node with the value of the entry after forward
    mutated_inputs: dict[str, str] = {}  # input name -> node
    parts: list[Part] = []  # set if only some parts of forward were captured
    forward: str = ""  # if `parts` is set: forward as Python code, with a line `__part__("part_1")` for each part
    left: list[str] = []  # if `parts` is set: the work that is left to PyTorch, and the reason

    @property
    def recordable(self) -> bool:
        """Returns whether a CUDA graph of forward reproduces everything that forward does."""
        return not self.mutated_inputs and not self.parts


class GroupSizes(BaseModel):
    """The rows of each group of a grouped product, in one call with the task's own inputs and the weights of its constructor."""

    source: str  # what routes the rows: "topk, 2 of 8 for each of 1,024 rows", "offsets in input 2"
    rows: list[int]  # by group


class KeyRows(BaseModel):
    """How many rows an operator adds up at each key, in one call with the task's own inputs."""

    source: str  # "index_add of 300,000 rows at 20,000 keys"
    median: float  # the lower of two
    most: int
    empty: int  # number of keys without any row


class Capture(BaseModel):
    """The result of the `capture` job. `graph` is null, with a reason, if torch.export could not capture the model."""

    task: str
    mode: str
    graph: Graph | None = None
    reason: str = ""
    flops: int | None = None  # operations in one forward call, as counted by torch's FlopCounterMode
    bytes_min: int | None = None  # bytes of inputs and weights read once, plus outputs written once
    seconds: float = 0.0
    group_sizes: list[GroupSizes] = []  # if the model routes rows to groups
    key_rows: list[KeyRows] = []  # if the model adds up rows by key, such as the edges of a node
    library: dict[str, str] = {}  # sources of library classes used in the model, by qualified name
