"""What kernels derive from weights once: made at the first forward, made anew after weights were loaded or moved."""

from __future__ import annotations

from agents.compiler.families import Packed


class Packing:
    """Collects what the kernels of one program need; equal expressions are made once."""

    def __init__(self) -> None:
        self.code: dict[str, str] = {}  # Python expression over self -> variable in forward

    def variable(self, packed: Packed, values: list[str], lines: list[str]) -> str:
        """The variable of forward that holds `packed`; `values` are the expressions of what it is derived from."""
        code = packed.code.format(*values)
        if code not in self.code:
            if not self.code:
                lines.append('packed = self.__dict__.get("packed") or self.pack()')
            self.code[code] = f"packed[{len(self.code)}]"
        return self.code[code]

    def methods(self, recorded: bool = False) -> str:
        """Methods of the model; "" where nothing is packed. `recorded`: a CUDA graph holds on to packed weights, so both go."""
        if not self.code:
            return ""
        lines = [
            "@torch.no_grad()",
            "def pack(self):",
            '    """Weights in the order in which the kernels read them."""',
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
