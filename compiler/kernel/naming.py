"""Assigns names inside a kernel that do not depend on its position in the graph, so that identical kernels have the same text."""

from __future__ import annotations

import re
from collections.abc import Collection, Set

from compiler.graph.ir import Kernel
from compiler.graph.network import Network
from compiler.kernel.builder import identifier

# Names that a printed C++ or CUDA function uses, in addition to the keywords of the language.
_WORDS = (
    "i j k l m n row at thread lane item part start end step group chunk tile mine first stage slot down across from memory held ready bring line "
    "plane block scratch stream "
    "alignas alignof and asm auto bitand bitor bool break case catch char class compl const constexpr continue default delete do double else enum "
    "explicit export extern false float for friend goto if inline int long mutable namespace new not nullptr operator or private protected public "
    "register return short signed sizeof static struct switch template this throw true try typedef typeid typename union unsigned using virtual void "
    "volatile while xor"
)
RESERVED_IN_C = frozenset(_WORDS.split())


# Module-level names that a program uses in addition to the task's names, and names that are reserved in its forward.
HELPERS = ("dense", "exact", "check", "kernels", "grouped", "routed")
IN_FORWARD = frozenset({"self", "torch", "ctypes", "stream", "scratch", "packed"})


def free(word: str, taken: Collection[str]) -> str:
    """Returns `word`, followed by as many underscores as are needed to make the name unique."""
    while word in taken:
        word += "_"
    return word


def unused(base: str, taken: Collection[str]) -> str:
    """Returns `base`, followed by a number if it is already taken."""
    name, number = base, 2
    while name in taken:
        name, number = f"{base}_{number}", number + 1
    return name


def parameters(names: list[str], taken: Collection[str]) -> list[str]:
    """Returns names for the parameters of forward: the task's own names unless they are taken."""
    found: list[str] = []
    for name in names:
        found.append(free(name, {*taken, *found, *names} if name in taken else found))
    return found


def rename_arguments(kernel: Kernel, network: Network, reserved: Set[str] = frozenset()) -> tuple[dict[str, str], dict[str, str]]:
    """Gives pointers and loads short names that are not in `reserved`. Returns the maps (old pointer -> new pointer, old operation -> new
    operation)."""
    read, written = iter("xyzuvw"), 0
    taken: set[str] = set(reserved)
    names: dict[str, str] = {}
    for old, argument in kernel.arguments.items():
        entry = network.inputs.get(argument.value)
        if entry is not None and entry.target:
            new = identifier(entry.target.rpartition(".")[2])
        elif argument.written:
            written += 1
            new = "out" if written == 1 else f"out{written}"
        else:
            new = next((letter for letter in read if letter not in taken), f"in{len(taken)}")
        new = free(new, {*taken, *kernel.ops})
        taken.add(new)
        names[old] = new
    for access in kernel.accesses():
        access.argument = names[access.argument]
    for argument in kernel.arguments.values():
        argument.name = names[argument.name]
    kernel.arguments = {argument.name: argument for argument in kernel.arguments.values()}
    wanted = {op.name: f"{op.access.argument}_{'i' if op.kind == 'load' else 'at'}" for op in kernel.ops.values() if op.kind in ("load", "gather")}
    wanted |= {name: f"{name}_" for name in kernel.ops if name in reserved and name not in wanted}
    return names, rename_ops(kernel, wanted, reserved)


def rename_ops(kernel: Kernel, renames: dict[str, str], reserved: Set[str] = frozenset()) -> dict[str, str]:
    taken = set(kernel.ops) - set(renames) | set(kernel.arguments) | set(reserved)
    final: dict[str, str] = {}
    for old, new in renames.items():
        name, number = new, 2
        while name in taken:
            name, number = f"{new}{number}", number + 1
        taken.add(name)
        final[old] = name
    ops = {}
    for op in kernel.ops.values():
        op.args = tuple(final.get(a, a) for a in op.args)
        if op.access.index:
            op.access.index = final.get(op.access.index, op.access.index)
        op.name = final.get(op.name, op.name)
        ops[op.name] = op
    for store in kernel.stores:
        store.op = final.get(store.op, store.op)
        store.access.index = final.get(store.access.index, store.access.index)
    kernel.ops = ops
    return final


# Functions declared in C, C++ and CUDA headers; a kernel with one of these names would redeclare the function. Names such as `sum` and `where` are
# not among them and are good variable names.
_FUNCTIONS = (
    "abs acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh div erf erfc erfcinv erfinv exp exp10 exp2 expm1 fabs fdim floor "
    "fma fmax fmin fmod frexp gamma hypot ilogb isalnum isalpha isdigit islower isspace isupper j0 j1 ldexp lgamma log log10 log1p log2 logb "
    "max min modf nextafter pow rand random rcbrt remainder remove round rsqrt select signbit sin sinh sqrt tan tanh tgamma trunc y0 y1"
)
_VARIABLES = "add clone line mean mul neg norm sign std sub sum var where"
C_WORDS = frozenset([*_FUNCTIONS.split(), *_VARIABLES.split()])


def kernel_base(kinds: list[str]) -> str:
    """Returns the C name of a kernel with the given operators. A number is appended if the name is taken."""
    base = re.sub(r"_+", "_", "_".join(dict.fromkeys(identifier(kind.lower()) for kind in kinds)))
    base = base if len(base) <= 40 else "_".join(base[:40].split("_")[:-1])
    return f"{base}_all" if base in C_WORDS else base
