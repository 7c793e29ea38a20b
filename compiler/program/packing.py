"""Tensors that kernels need and that are derived from weights. They are computed in the first forward and recomputed after weights are loaded or
moved."""

from __future__ import annotations


class Packing:
    """Collects the packed tensors that a program's kernels need. Equal expressions are computed only once."""

    def __init__(self, device: str) -> None:
        self.device = device  # its expression in forward
        self.code: dict[str, str] = {}  # Python expression over self -> variable in forward

    def variable(self, code: str, lines: list[str]) -> str:
        """Returns the variable of forward that holds the value of `code`, an expression over `self` and `device`."""
        if code not in self.code:
            if not self.code:
                lines.append(f'packed = self.__dict__.get("packed") or self.pack({self.device})')
            self.code[code] = f"packed[{len(self.code)}]"
        return self.code[code]

    def methods(self, recorded: bool = False) -> str:
        """Returns the model methods that manage packed tensors, or "" if there are none. With `recorded`, a CUDA graph refers to the packed weights,
        so both are discarded together."""
        if not self.code:
            return ""
        lines = [
            "@torch.no_grad()",
            "def pack(self, device):",
            '    """Weights and constants as the kernels read them."""',
            "    self.packed = (",
            *(f"        {code}," for code in self.code),
            "    )",
            "    return self.packed",
            "",
            "def _load_from_state_dict(self, *args, **kwargs):",
            "    self.packed = None  # made of the old weights",
            *(["    self.recorded = None"] if recorded else []),
            "    return super()._load_from_state_dict(*args, **kwargs)",
            "",
        ]
        if not recorded:
            lines += [
                "def _apply(self, *args, **kwargs):",
                "    self.packed = None  # parameters may move",
                "    return super()._apply(*args, **kwargs)",
                "",
            ]
        return "\n".join(f"    {line}" if line else "" for line in lines) + "\n"
