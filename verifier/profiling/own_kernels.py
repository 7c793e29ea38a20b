"""Decides by name which kernels are the program's own, that is, defined in its source rather than supplied by a library.

Names come from the source text (`__global__` functions in its CUDA strings, entries in PTX, `@triton.jit` functions) and from the machine code that
the builder produced, never from a runner's reports. Kernels are compared by their full signature: a library's `cutlass::Kernel2<...>` does not
become the program's own just because the program also defines a `Kernel2`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from verifier.report import ObservedKernel

# Namespaces and name patterns that only libraries and torch's compiler use, wherever they are defined. The compiler's names continue with "fused" or
# a number; `triton_per_token_quant` is a name that people give.
_LIBRARY = re.compile(
    r"^(?:at::|c10::|torch::|cudnn|cublas|cusparse|cusolver|cufft|nccl|cask|xmma|cub::|thrust::|nvjet|implicit_convolve|"
    r"triton_helpers_|triton_(?:poi|per|red|tem|for)_(?:fused|_?\d|$)|triton_$)"
)
# Libraries assemble such kernels by machine, so their names carry an architecture and a tile, and traces show them without arguments. People name
# kernels after an architecture too: `sm90_gemm`, `hopper_attention(float*)`.
_ASSEMBLED = re.compile(r"^(?:sm\d+|ampere|volta|turing|maxwell|hopper)_(?=.*(?:xmma|\d+x\d+))")
_LIBRARY_INSIDE = re.compile(r"cutlass_?_?\d+[a-z]?_|__5x_c|_cublas\b|cublas[A-Z]|cudnn::|at::native::|at::cuda::")
_GLOBAL = re.compile(r"__global__\b")
_ENTRY = re.compile(r"\.entry\s+([A-Za-z_]\w*)\s*\(")  # a kernel in PTX
_NAMED = re.compile(r"\b(?P<name>[A-Za-z_]\w*)\s*\(")
_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+\w+\((?P<arguments>[^)]*)\)", re.MULTILINE)
_ATTRIBUTE = re.compile(
    r"__(?:launch_bounds|cluster_dims|maxnreg|block_size)__\s*\([^()]*(?:\([^()]*\)[^()]*)*\)|__attribute__\s*\(\(.*?\)\)", re.DOTALL
)
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_WORD = re.compile(r"(?<!\w)[A-Za-z_]\w*")
_BUILT_IN = frozenset(
    [
        *("void", "const", "volatile", "restrict", "__restrict__", "int", "float", "double", "char", "signed", "unsigned", "long", "short", "bool"),
        *("wchar_t", "true", "false", "nullptr", "enum", "struct", "class", "anonymous", "namespace", "unnamed", "lambda", "auto", "type"),
        *("operator", "std", "size_t", "__int128", "allocator", "T", "c10", "Half", "BFloat16", "cuda"),
        *("__half", "__half2", "__nv_bfloat16", "__nv_bfloat162"),
    ]
)


@dataclass(frozen=True)
class OwnKernels:
    """Identifies a program's kernels by the names that it defines, the words in its CUDA text, and the mangled names in its compiled libraries."""

    names: frozenset[str]  # unqualified
    triton: frozenset[str]
    words: frozenset[str]
    pasted: bool  # whether the text may form names that do not follow `__global__` literally: ##, a macro argument, an f-string or another template
    symbols: tuple[str, ...] = ()

    @classmethod
    def of(cls, program_source: str, symbols: Iterable[str] = ()) -> OwnKernels:
        tree = ast.parse(program_source)
        names: set[str] = set()
        triton = {function.name for function in jit_functions(tree)}
        words: set[str] = set()
        pasted = False
        replaced = _replaced(tree)
        remarks = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # texts that nothing reads, such as docstrings
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and _native(node.value) and id(node) not in remarks:
                text = _ATTRIBUTE.sub(" ", _COMMENT.sub(" ", node.value))
                found = [_defined_at(text, match.end()) for match in _GLOBAL.finditer(text)]
                here = {name for name in (*found, *_ENTRY.findall(text)) if name}
                pasted = pasted or "" in found or not here.isdisjoint(replaced)
                names |= here
                words.update(_WORD.findall(text))
                arguments = {word for match in _MACRO.finditer(text) for word in _WORD.findall(match["arguments"])}
                pasted = pasted or ("##" in text and "__global__" in text) or bool(here & arguments)
            elif isinstance(node, ast.JoinedStr):
                pasted = pasted or any(isinstance(part, ast.Constant) and "__global__" in str(part.value) for part in node.values)
        return cls(frozenset(names), frozenset(triton), frozenset(words), pasted, tuple(symbols))

    @property
    def defined(self) -> frozenset[str]:
        """Returns the unqualified names of all kernels that the program supplies."""
        compiled = {name for symbol in self.symbols if (name := qualified(symbol).rsplit("::", 1)[-1]) and self._written(name)}
        return self.names | self.triton | compiled

    def _written(self, name: str) -> bool:
        """Returns whether a compiled kernel with this unqualified name comes from the source text rather than from a header or a prebuilt library."""
        return name in self.names or self.pasted or (name in self.words and not self.names)

    def owns(self, kernel: str) -> bool:
        """Returns whether a kernel (demangled, mangled or plain name) is the program's own."""
        base = base_name(kernel)
        if _by_a_library(kernel, base):
            return False
        if kernel in self.triton:
            return True
        if kernel.startswith("_Z"):
            name = qualified(kernel).rsplit("::", 1)[-1]
            return kernel in self.symbols and self._written(name) or name in self.names and identifiers(kernel, self.words)
        name = base.rsplit("::", 1)[-1]
        words = {word for word in _WORD.findall(kernel) if not re.fullmatch(r"T\d+", word)} - _BUILT_IN
        if name in self.names and words <= self.words:
            return True
        return any(self._written(name) and qualified(symbol) == base and words <= spelled(symbol) | {base} for symbol in self.symbols)

    @staticmethod
    def short(kernel: str) -> str:
        """Returns the unqualified name by which `defined` lists a kernel."""
        return (qualified(kernel) if kernel.startswith("_Z") else base_name(kernel)).rsplit("::", 1)[-1]


def _defined_at(text: str, at: int) -> str:
    """Returns the name of the kernel whose definition or declaration continues at `at`, after `__global__`. Macros with arguments (`BOUNDS(THREADS)`)
    are skipped. Returns an empty string if the name is not there literally, as in a template for `format`, `replace` or `%`."""
    first = ""
    while (match := _NAMED.search(text, at)) is not None and not re.search(r"[;{}]", text[at : match.start()]):
        if text[match.start() - 1] not in " \t\r\n*&>\\":
            return ""
        first = first or match["name"]
        at, depth = match.end(), 1
        while at < len(text) and depth:
            depth += {"(": 1, ")": -1}.get(text[at], 0)
            at += 1
        if text[at:].lstrip(" \t\r\n\\")[:1] in ("{", ";", ""):
            return match["name"]
    return first


def _replaced(tree: ast.AST) -> set[str]:
    """Returns the words that the program replaces in a text by `replace`."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "replace"]
    return {call.args[0].value for call in calls if call.args and isinstance(call.args[0], ast.Constant) and isinstance(call.args[0].value, str)}


def _by_a_library(kernel: str, base: str) -> bool:
    """Returns whether a kernel, whose qualified name is `base`, has a name that only a library or torch's compiler uses."""
    assembled = kernel == base and not kernel.startswith("_Z") and _ASSEMBLED.match(base)
    return bool(assembled or _LIBRARY.match(base) or _LIBRARY_INSIDE.search(kernel))


def jit_functions(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    """Yields the functions that Triton compiles: decorated ones (`@triton.jit`), and those that a call wraps (`triton.jit(f)`)."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and re.search(r"(?:^|\.)jit$", ast.unparse(node.func))]
    wrapped = {argument.id for call in calls for argument in call.args if isinstance(argument, ast.Name)}
    for function in functions:
        if function.name in wrapped or any(word in ast.unparse(one) for one in function.decorator_list for word in ("jit", "autotune")):
            yield function


def _native(text: str) -> bool:
    return "__global__" in text or "__device__" in text or 'extern "C"' in text or _ENTRY.search(text) is not None


def own_kernel_names(program_source: str) -> frozenset[str]:
    """Returns the unqualified names of the kernels that the program defines in CUDA strings or with `@triton.jit`."""
    own = OwnKernels.of(program_source)
    return own.names | own.triton


def base_name(kernel: str) -> str:
    """Returns the qualified function name of a demangled kernel: "void ns::k<int>(float*)" -> "ns::k"."""
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


def qualified(symbol: str) -> str:
    """Returns the qualified name in an Itanium-mangled symbol, without template arguments and anonymous namespaces. A plain name is returned
    unchanged."""
    if not symbol.startswith("_Z"):
        return symbol
    at = 2
    nested = symbol[at : at + 1] == "N"
    at += nested
    parts: list[str] = []
    while at < len(symbol):
        if symbol[at] in "LrVK":
            at += 1
            continue
        digits = re.match(r"\d+", symbol[at : at + 4])
        if digits is None:
            break
        at += len(digits[0])
        parts.append(symbol[at : at + int(digits[0])])
        at += int(digits[0])
        if not nested:
            break
    return "::".join(part for part in parts if not part.startswith("_GLOBAL__N_"))


def spelled(symbol: str) -> set[str]:
    """Returns every identifier that a mangled symbol may spell out (a superset: digits within names are also tried as lengths)."""
    found = set()
    for match in re.finditer(r"\d+", symbol):
        for begin in range(match.start(), match.end()):
            word = symbol[match.end() : match.end() + int(symbol[begin : match.end()][:3])]
            if word.isidentifier():
                found.add(word)
    return found


def identifiers(symbol: str, words: frozenset[str]) -> bool:
    """Returns whether a mangled name consists of identifiers from the program's CUDA text."""
    at = len(symbol) - len(symbol.lstrip("_Z"))
    for match in re.finditer(r"(?<![\dA-Za-z_])(\d{1,3})", symbol[at:]):
        word = symbol[at + match.end() : at + match.end() + int(match[1])]
        if word.isidentifier() and len(word) == int(match[1]) and word not in words | _BUILT_IN and not word.startswith("_GLOBAL__N_"):
            return False
    return "at6native" not in symbol


def is_own(kernel: str, own: frozenset[str]) -> bool:
    """Returns whether a kernel (demangled, mangled or plain name) is the program's own, based on names alone."""
    base = base_name(kernel)
    if _by_a_library(kernel, base) or "2at6native" in kernel:
        return False
    if base.rsplit("::", 1)[-1] in own:
        return True
    return kernel.startswith("_Z") and qualified(kernel).rsplit("::", 1)[-1] in own


def classified(kernels: list[ObservedKernel], own: OwnKernels, by_library: Iterable[str] = ()) -> tuple[list[ObservedKernel], float | None]:
    """Classifies the device work that a runner recorded: sets `own` and `share` of each entry, and returns the program's own share of the time (null
    if nothing ran). `by_library` holds the names launched by a torch operator or a compiler's graph."""
    taken = set(by_library)
    total = sum(kernel.ms for kernel in kernels)
    decided = [
        kernel.model_copy(update={"own": kernel.name not in taken and own.owns(kernel.name), "share": kernel.ms / total if total > 0 else 0.0})
        for kernel in kernels
    ]
    return decided, (sum(kernel.ms for kernel in decided if kernel.own) / total if total > 0 else None)
