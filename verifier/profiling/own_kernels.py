"""Which kernels are the program's own, told by name: defined in its source, against brought by a library.

Names come from the source text (`__global__` functions in its CUDA strings, `@triton.jit` functions), never from what a runner says. A kernel
that a library names is a library's, even where the program defines one of the same name.
"""

from __future__ import annotations

import ast
import re

from verifier.report import Kernel

_LIBRARY = re.compile(
    r"^(?:at::|c10::|torch::|cudnn|cublas|cusparse|cusolver|cufft|nccl|cask|xmma|cub::|thrust::|nvjet|"
    r"sm\d+_|ampere_|volta_|turing_|maxwell_|hopper_|implicit_convolve|gemmSN|gemmk1|gemv2|splitKreduce|dot_kernel|reduce_1Block|"
    r"triton_(?:poi|per|red|tem|for)_)"
)
_GLOBAL = re.compile(r"__global__\b(?P<head>[^;{}]*?)\b(?P<name>[A-Za-z_]\w*)\s*\((?!\s*\d+\s*[,)])", re.DOTALL)
_ATTRIBUTE = re.compile(r"__launch_bounds__\s*\([^()]*(?:\([^()]*\)[^()]*)*\)|__cluster_dims__\s*\([^()]*\)|__attribute__\s*\(\(.*?\)\)", re.DOTALL)
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)


def own_kernel_names(program_source: str) -> frozenset[str]:
    """Unqualified names of the kernels that the program defines in CUDA strings or by `@triton.jit`."""
    tree = ast.parse(program_source)
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "__global__" in node.value:
            text = _ATTRIBUTE.sub(" ", _COMMENT.sub(" ", node.value))
            names.update(match["name"] for match in _GLOBAL.finditer(text))
        elif isinstance(node, ast.FunctionDef) and any("jit" in ast.unparse(d) or "autotune" in ast.unparse(d) for d in node.decorator_list):
            names.add(node.name)
    return frozenset(names)


def base_name(kernel: str) -> str:
    """The qualified function name of a demangled kernel: "void ns::k<int>(float*)" -> "ns::k"."""
    text = kernel.replace("(anonymous namespace)::", "").replace("<unnamed>::", "")
    kept: list[str] = []
    depth = 0
    for character in text:
        if character == "<":
            depth += 1
        elif character == ">":
            depth = max(depth - 1, 0)
        elif depth == 0:
            if character == "(":
                break
            kept.append(character)
    words = "".join(kept).split()
    return words[-1] if words else kernel


def is_own(kernel: str, own: frozenset[str]) -> bool:
    """Whether a kernel (demangled, mangled or plain name) is one of the program's own."""
    qualified = base_name(kernel)
    if _LIBRARY.match(qualified):
        return False
    last = qualified.rsplit("::", 1)[-1]
    if last in own:
        return True
    # Mangled by the Itanium rules: _Z, then length and name; a nested name lies between N and E.
    return kernel.startswith("_Z") and any(re.search(rf"(?<!\d){len(name)}{re.escape(name)}", kernel) for name in own) and "2at6native" not in kernel


def classified(kernels: list[Kernel], program_source: str) -> tuple[list[Kernel], float | None]:
    """The kernels that a runner saw, each with `own` decided here, and the own share of their time (null where none ran)."""
    own = own_kernel_names(program_source)
    decided = [kernel.model_copy(update={"own": is_own(kernel.name, own)}) for kernel in kernels]
    total = sum(kernel.ms for kernel in decided)
    return decided, (sum(kernel.ms for kernel in decided if kernel.own) / total if total > 0 else None)
