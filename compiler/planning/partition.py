"""Greedy fusion: every operator joins the group of a producer where one kernel can hold both and no cycle arises."""

from __future__ import annotations

from dataclasses import dataclass

from compiler import families
from compiler.graph.ir import Kernel, product
from compiler.graph.layout import SPLITS
from compiler.graph.network import Network, refs
from compiler.graph.reductions import short
from compiler.kernel.builder import CONSTANTS, Refused
from compiler.kernel.fuse import build, fusible, unit

TINY = 1024  # elements below which a lone operator is not worth a kernel of its own
DEAR = {"exp", "log", "tanh", "erf", "sigmoid", "pow", "sin", "cos", "log1p", "expm1", "exp2", "erfc", "tan"}


@dataclass
class Cluster:
    members: list[str]
    kernel: Kernel | None = None  # null: the library computes it
    reason: str = ""
    match: families.Match | None = None  # a family's kernel computes it, tail and prologues with it
    shape: tuple[int, ...] = ()  # of the anchor's value

    @property
    def own(self) -> bool:
        return self.kernel is not None or self.match is not None


def partition(network: Network, setting: families.Setting | None = None) -> list[Cluster]:
    """Clusters in an order in which they can run. Views and constants are in none: they cost nothing, or are printed where they are read."""
    order = {name: at for at, name in enumerate(network.nodes)}
    owner: dict[str, Cluster] = {}
    for name, node in network.nodes.items():
        if name in owner or network.is_view(name) or node.op in SPLITS or short(node) in CONSTANTS or network.of_weights(name):
            continue
        match, declined = families.find(network, node, setting)
        if match is not None and setting is not None:
            _anchor(network, owner, order, match, setting)
            continue
        if fusible(network, name):
            cluster = _alone(network, unit(network, name))
        else:
            cluster = Cluster(members=[name], reason=declined or f"{short(node)} is the library's")
        for member in cluster.members:
            owner[member] = cluster
        if cluster.kernel is None:
            continue
        for producer in _producers(network, cluster, owner):
            _merge(network, owner, order, producer, owner[name], setting)
    _siblings(network, owner, order, setting)
    for cluster in _distinct(owner):
        if cluster.kernel is not None and len(cluster.members) == 1 and not cluster.kernel.reduces and _work(cluster.kernel) < TINY:
            cluster.kernel, cluster.reason = None, "too small for a kernel of its own"
    return _sorted(network, owner)


def _alone(network: Network, members: list[str]) -> Cluster:
    try:
        return Cluster(members, build(network, members))
    except Refused as refusal:
        return Cluster(members, None, str(refusal))


def _producers(network: Network, cluster: Cluster, owner: dict[str, Cluster]) -> list[Cluster]:
    """Clusters with a kernel (of the IR or of a family) whose values `cluster` reads, latest first."""
    found: list[Cluster] = []
    for member in cluster.members:
        for name in _sources(network, member):
            other = owner.get(name)
            if other is not None and other is not cluster and other.own and all(other is not f for f in found):
                found.append(other)
    return list(reversed(found))


def _sources(network: Network, name: str) -> list[str]:
    """Values with memory of their own that operator `name` reads, through views."""
    result = []
    for source in refs([network.nodes[name].args, list(network.nodes[name].kwargs.values())]):
        if source in network.nodes:
            node = network.nodes[source]
            if network.is_view(source) or node.op in SPLITS:
                result.extend(_sources(network, source))
            else:
                result.append(source)
    return result


def _anchor(network: Network, owner: dict[str, Cluster], order: dict[str, int], match: families.Match, setting: families.Setting) -> None:
    """The cluster of a family's anchor, with the pointwise producers of its inputs where it can compute them on load."""
    cluster = Cluster(list(match.members), match=match, shape=tuple(network.spec(match.value).shape))
    for member in cluster.members:
        owner[member] = cluster
    for value in match.prologue:
        producer = owner.get(value)
        if producer is None or producer.kernel is None or producer.kernel.reduces:
            continue
        if match.recompute > 1 and any(op.kind in DEAR for op in producer.kernel.ops.values()):
            continue
        _join(network, owner, order, owner[match.anchor], producer, setting)


def _join(network: Network, owner: dict[str, Cluster], order: dict[str, int], a: Cluster, b: Cluster, setting: families.Setting | None) -> bool:
    """Takes the pointwise cluster `b` into the kernel of a family, as a prologue or as a part of its tail."""
    if setting is None or a.match is None or b.kernel is None or b.kernel.reduces:
        return False
    members = sorted([*a.members, *b.members], key=order.__getitem__)
    try:
        families.make_work(network, a.match, members, setting)
    except Refused:
        return False
    return _replace(network, owner, Cluster(members, match=a.match, shape=a.shape))


def _replace(network: Network, owner: dict[str, Cluster], merged: Cluster) -> bool:
    """`merged` in place of the clusters that its members were in, unless a cycle would arise."""
    trial = {**owner, **dict.fromkeys(merged.members, merged)}
    if not acyclic(network, trial):
        return False
    owner.update(trial)
    return True


def _merge(network: Network, owner: dict[str, Cluster], order: dict[str, int], a: Cluster, b: Cluster, setting: families.Setting | None) -> bool:
    if a is b or not a.own or not b.own or (a.match and b.match):
        return False
    if a.match or b.match:
        return _join(network, owner, order, a if a.match else b, b if a.match else a, setting)
    assert a.kernel is not None and b.kernel is not None, "what is ours without a match has a kernel"
    small, large = sorted((_work(a.kernel), _work(b.kernel)))
    smaller = a.kernel if _work(a.kernel) == small else b.kernel
    if small * 4 <= large and not smaller.reduces and any(op.kind in DEAR for op in smaller.ops.values()):
        return False  # would be computed again for every element that it is broadcast to
    members = sorted([*a.members, *b.members], key=order.__getitem__)
    try:
        kernel = build(network, members)
    except Refused:
        return False
    return _replace(network, owner, Cluster(members, kernel))


def _siblings(network: Network, owner: dict[str, Cluster], order: dict[str, int], setting: families.Setting | None) -> None:
    """Kernels over the same domain that read the same large tensor share one pass over it."""
    while True:
        clusters = [(c, c.kernel) for c in _distinct(owner) if c.kernel is not None]
        for at, (a, kernel) in enumerate(clusters):
            read = {arg.value for arg in kernel.arguments.values() if arg.read and arg.elements * 2 >= _work(kernel)}
            partners = [
                b
                for b, other in clusters[at + 1 :]
                if _work(other) == _work(kernel) and read & {arg.value for arg in other.arguments.values() if arg.read}
            ]
            if any(_merge(network, owner, order, a, b, setting) for b in partners):
                break
        else:
            return


def _work(kernel: Kernel) -> int:
    return product(kernel.sizes)


def _distinct(owner: dict[str, Cluster]) -> list[Cluster]:
    return list({id(cluster): cluster for cluster in owner.values()}.values())


def acyclic(network: Network, owner: dict[str, Cluster]) -> bool:
    return _toposort(network, owner) is not None


def _toposort(network: Network, owner: dict[str, Cluster]) -> list[Cluster] | None:
    clusters = _distinct(owner)
    waiting: dict[int, int] = {id(c): 0 for c in clusters}
    after: dict[int, set[int]] = {id(c): set() for c in clusters}
    for cluster in clusters:
        for member in cluster.members:
            for source in _sources(network, member):
                maker = owner.get(source)
                if maker is not None and maker is not cluster and id(cluster) not in after[id(maker)]:
                    after[id(maker)].add(id(cluster))
                    waiting[id(cluster)] += 1
    known = {id(c): c for c in clusters}
    ready = [c for c in clusters if waiting[id(c)] == 0]
    done = []
    while ready:
        cluster = ready.pop(0)
        done.append(cluster)
        for other in after[id(cluster)]:
            waiting[other] -= 1
            if waiting[other] == 0:
                ready.append(known[other])
    return done if len(done) == len(clusters) else None


def _sorted(network: Network, owner: dict[str, Cluster]) -> list[Cluster]:
    """As close to the order of the source as dependencies allow."""
    order = {name: at for at, name in enumerate(network.nodes)}
    clusters = sorted(_distinct(owner), key=lambda c: order[c.members[-1]])
    done: list[Cluster] = []
    placed: set[int] = set()

    def place(cluster: Cluster) -> None:
        if id(cluster) in placed:
            return
        placed.add(id(cluster))
        for member in cluster.members:
            for source in _sources(network, member):
                if source in owner and owner[source] is not cluster:
                    place(owner[source])
        done.append(cluster)

    for cluster in clusters:
        place(cluster)
    return done
