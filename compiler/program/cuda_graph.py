"""The `cuda-graph` strategy: records the launches of a forward once, then replays them, copying the inputs in and the results out."""

from __future__ import annotations

from typing import Any

from compiler.kernel.naming import free
from compiler.program.results import copied


def wrap(
    signature: str,
    arguments: list[str],
    tensors: list[str],
    mutated: list[str],
    body: list[str],
    tree: Any,
    leaves: list[Any],
    packed: bool = False,
    moved: list[str] | None = None,
    method: str = "forward",
    written: list[str] | None = None,
) -> str:
    """Returns the methods `compute` (the launches), `record`, and the `forward` (or `method`) that replays them. `mutated` lists the expressions of
    the state that forward changes, `packed` indicates whether there are tensors derived from weights (packing.py), `moved` lists the statements
    that move state to the device, and `written` lists the `tensors` that forward changes, which are copied back."""
    words = ("key", "static", "state", "saved", "value", "before", "side", "graph", "results", "recorded", "held")
    key, static, state, saved, value, before, side, graph, results, recorded, held = (free(word, arguments) for word in words)
    inputs = "".join(f"{name}, " for name in tensors)
    call = ", ".join(f"{static}[{tensors.index(name)}]" if name in tensors else name for name in arguments)
    plain = [name for name in arguments if name not in tensors]
    device = f"{tensors[0]}.device" if tensors else '"cuda"'
    same = ", ".join(["self.training", *(f"{name}.shape, {name}.dtype, {name}.device" for name in tensors), *plain])
    lines = [
        f"def compute{signature}:",
        *(f"    {line}" for line in body),
        "",
        "@torch.no_grad()",
        f"def record(self, {key}{''.join(', ' + name for name in arguments)}):",
        '    """Record the launches of one call; what the warm-up does to the state is undone."""',
        f"    {static} = [torch.empty_like({value}, memory_format=torch.contiguous_format).copy_({value}) for {value} in ({inputs})]",
        f"    {state} = [{', '.join(mutated)}]",
        f"    {saved} = [{value}.clone() for {value} in {state}]",
        f"    {side} = torch.cuda.Stream({device})",
        f"    {side}.wait_stream(torch.cuda.current_stream({device}))",
        f"    with torch.cuda.stream({side}):",
        "        for _ in range(3):",
        f"            self.compute({call})",
        f"        for {value}, {before} in zip({state}, {saved}):",
        f"            {value}.copy_({before})",
        f"    torch.cuda.current_stream({device}).wait_stream({side})",
        f"    {graph} = torch.cuda.CUDAGraph()",
        f"    with torch.cuda.graph({graph}):",
        f"        {results} = self.compute({call})",
        f"    self.recorded = ({key}, {graph}, {static}, {results})",
        "",
        "def _apply(self, *args, **kwargs):",
        "    self.recorded = None  # parameters may move",
        *(["    self.packed = None"] if packed else []),
        "    return super()._apply(*args, **kwargs)",
        "",
        "def load_state_dict(self, *args, **kwargs):",
        "    self.recorded = None",
        "    return super().load_state_dict(*args, **kwargs)",
        "",
        "@torch.no_grad()",
        f"def {method}{signature}:",
        *(f"    {line}" for line in moved or []),
        f"    {key} = ({same},)",
        f'    {recorded} = self.__dict__.get("recorded")',
        f"    if {recorded} is None or {recorded}[0] != {key}:",
        f"        self.record({key}{''.join(', ' + name for name in arguments)})",
        f"    _, {graph}, {static}, {results} = self.recorded",
        f"    for {held}, {value} in zip({static}, ({inputs})):",
        f"        {held}.copy_({value})",
        f"    {graph}.replay()",
        *(f"    {name}.copy_({static}[{tensors.index(name)}])" for name in written or []),
        f"    return {copied(tree, lambda leaf: isinstance(leaves[leaf], dict) and 'ref' in leaves[leaf], results, top=True)}",
    ]
    return "\n".join(f"    {line}" if line else "" for line in lines) + "\n"
