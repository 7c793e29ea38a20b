"""Kernels that the fused-loop IR cannot express.

`FAMILIES` lists the kernel families in the order in which the compiler tries them. family.py defines the interface, and pool.py is a good example to
copy.

To add a family, write a module in this package with a class that implements `Family`, and add an instance to `FAMILIES`. Add a strategy for it to the
catalogue; this strategy is the family's gate. List the strategy in `options.SAFE` if it is enabled from the first program on, or in `options.TRIED`
if it must be measured first. Put the tests in tests/unit/compiler.
"""

from __future__ import annotations

from compiler.families.attention.attention import Attention
from compiler.families.conv.conv import Conv
from compiler.families.conv.depthwise import DepthwiseConv
from compiler.families.conv.half_conv import HalfConv
from compiler.families.conv.half_pointwise import HalfPointwise
from compiler.families.epilogue import Prologue, Tail, build_prologue, build_tail
from compiler.families.family import NAME, Cost, Family, Match, Packed, Printed, Printers, Setting, Work, plain_cost, traffic
from compiler.families.ordered import Order
from compiler.families.pool import Pool
from compiler.families.product.grouped import Grouped
from compiler.families.product.half_product import HalfProduct
from compiler.families.product.matmul import Matmul
from compiler.families.product.matvec import Matvec
from compiler.families.product.routing import Routing
from compiler.families.recurrent.recurrent import Recurrent
from compiler.families.scan import Scan
from compiler.families.stepped.stepped import Steps
from compiler.graph.layout import SPLITS
from compiler.graph.network import Network, refs
from compiler.kernel.builder import Refused
from compiler.options import Options
from verifier.graph import Node

FAMILIES: tuple[Family, ...] = (
    Steps(), Pool(), Attention(), Grouped(), Routing(), HalfProduct(), Matmul(), DepthwiseConv(), HalfPointwise(), HalfConv(), Recurrent(), Conv(),
    Scan(), Matvec(), Order(),
)  # fmt: skip
INTO_PARTS = ("conv", "half-conv", "half-pointwise", "depthwise")  # their tails compute each address from strides


def find(network: Network, node: Node, setting: Setting | None) -> tuple[Match | None, str]:
    """Returns the match of the first family that takes `node` and can print the language, or else the reason why a family declined it."""
    if setting is None:
        return None, ""
    why = ""
    for family in FAMILIES:
        if setting.language not in family.printers:
            continue
        try:
            found = family.match(network, node, setting)
        except Refused as refusal:
            why = why or str(refusal)
            continue
        if found is not None:
            return found, ""
    return None, why


def by_name(name: str) -> Family:
    return next(family for family in FAMILIES if family.name == name)


def make_work(network: Network, match: Match, members: list[str], setting: Setting, options: Options | None = None, group: str = "") -> Work:
    """Builds the kernel of `match`, with the other `members` (topologically sorted) as prologues and tail. Raises `Refused`."""
    covered = set(members)
    before = _before(network, match, covered)
    prologues = {}
    for value in match.prologue:
        own = [name for name in members if name in before.get(value, set())]
        if own:
            prologues[value] = build_prologue(network, value, own, match.prologue_groups or (), match.reserved)
    early = set().union(*before.values()) if before else set()
    rest = [name for name in members if name not in match.members and name not in early]
    others = set(match.members) - {match.value}
    if any(network.base(read) in others for name in rest for read in refs([network.nodes[name].args, list(network.nodes[name].kwargs.values())])):
        raise Refused("another result of the kernel is read")
    tail = build_tail(network, match.value, rest, covered, match.groups, match.reserved, match.any_layout)
    _apart(tail, prologues)
    return Work(network, match, tail, prologues, setting, options or Options(), group, frozenset(early))


def _before(network: Network, match: Match, covered: set[str]) -> dict[str, set[str]]:
    """For each input, returns the operators of the kernel that compute it. Raises `Refused` if another operator also needs one of them."""
    found = {}
    for value in match.reads:
        own: set[str] = set()
        waiting = [value]
        while waiting:
            name = waiting.pop()
            if name in own or name not in network.nodes:
                continue
            if name in covered:
                own.add(name)
            elif not (network.is_view(name) or network.nodes[name].op in SPLITS):
                continue
            waiting += refs([network.nodes[name].args, list(network.nodes[name].kwargs.values())])
        if own and (value not in match.prologue or value not in own):
            raise Refused("an input is computed in the same kernel")
        allowed = own | set(match.members)
        if any(network.escapes(name) or not network.readers(name) <= (allowed if name == value else own) for name in own):
            raise Refused("an input is also read elsewhere")
        found[value] = own
    return found


def _apart(tail: Tail, prologues: dict[str, Prologue]) -> None:
    """Renames prologue pointers whose names clash with those of another prologue or of the tail."""
    taken = {argument.name for argument in tail.arguments} | set(tail.kernel.ops)
    for prologue in prologues.values():
        kernel = prologue.kernel
        renames = {}
        for argument in kernel.arguments.values():
            new = argument.name
            while new in taken:
                new = f"{new}_in"
            renames[argument.name] = argument.name = new
            taken.add(new)
        for access in kernel.accesses():
            access.argument = renames[access.argument]
        kernel.arguments = {argument.name: argument for argument in kernel.arguments.values()}


__all__ = [
    "FAMILIES", "INTO_PARTS", "NAME", "Cost", "Family", "Match", "Packed", "Printed", "Printers", "Prologue", "Refused", "Setting", "Tail", "Work",
    "build_prologue", "build_tail", "by_name", "find", "make_work", "plain_cost", "traffic",
]  # fmt: skip
