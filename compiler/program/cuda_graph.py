"""The strategy `cuda-graph`: the launches of a forward are recorded once and replayed, with inputs copied in and results copied out."""

from __future__ import annotations

from typing import Any

from compiler.kernel.naming import free


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
) -> str:
    """Methods `compute` (the launches), `record` and `forward`. `mutated`: expressions of the state that forward changes;
    `packed`: there are tensors derived from weights (packing.py); `moved`: statements that bring state to the device."""
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
        f"def forward{signature}:",
        *(f"    {line}" for line in moved or []),
        f"    {key} = ({same},)",
        f'    {recorded} = self.__dict__.get("recorded")',
        f"    if {recorded} is None or {recorded}[0] != {key}:",
        f"        self.record({key}{''.join(', ' + name for name in arguments)})",
        f"    _, {graph}, {static}, {results} = self.recorded",
        f"    for {held}, {value} in zip({static}, ({inputs})):",
        f"        {held}.copy_({value})",
        f"    {graph}.replay()",
        f"    return {copies(tree, leaves, results, top=True)}",
    ]
    return "\n".join(f"    {line}" if line else "" for line in lines) + "\n"


def copies(tree: Any, leaves: list[Any], at: str, top: bool = False) -> str:
    """The results with every tensor cloned, as the graph will write over them; `at` is the expression of the (sub)tree."""
    if isinstance(tree, int):
        return f"{at}.clone()" if isinstance(leaves[tree], dict) and "ref" in leaves[tree] else at
    if isinstance(tree, list):
        return f"[{', '.join(copies(item, leaves, f'{at}[{n}]') for n, item in enumerate(tree))}]"
    if isinstance(tree.get("tuple"), list):
        items = [copies(item, leaves, f"{at}[{n}]") for n, item in enumerate(tree["tuple"])]
        joined = ", ".join(items) + ("," if len(items) == 1 else "")
        return joined if top and len(items) > 1 else f"({joined})"
    return "{" + ", ".join(f'"{key}": {copies(item, leaves, f"{at}[{key!r}]")}' for key, item in tree.items()) + "}"
