"""Greedy fusion: every operator joins the group of a producer if one kernel can compute both and this creates no cycle."""

from __future__ import annotations

from dataclasses import dataclass

from compiler import families
from compiler.graph.constants import CONSTANTS
from compiler.graph.ir import Kernel, product
from compiler.graph.layout import SPLITS
from compiler.graph.network import Network, count, plain, refs, size_bytes
from compiler.graph.overwriting import old_readers
from compiler.graph.placing import placing
from compiler.graph.reductions import short
from compiler.kernel.builder import Refused
from compiler.kernel.functions import DEAR
from compiler.kernel.fuse import build, fusible, unit
from verifier.graph import Node

CAT = "aten.cat.default"
IN_PLACE = "written in place: only the changed elements move"
MOST_OPERATORS = 64  # limit per fused loop: splits an unrolled recurrence into identical kernels (printed once) and keeps planning fast
MOST_SIBLINGS = 6  # number of following siblings to try to merge with, because all steps of a recurrence read one tensor at different positions
TINY = 1024  # elements below which a single operator does not justify a kernel
SMALL = 4  # a write in place is at most one part in this many of its tensor; a kernel that reads the rest could otherwise write the whole


@dataclass
class Cluster:
    members: list[str]
    kernel: Kernel | None = None  # None if the library computes it
    reason: str = ""
    match: families.Match | None = None  # the family with the kernel that computes the cluster, including tail and prologues
    shape: tuple[int, ...] = ()  # shape of the anchor's value

    @property
    def own(self) -> bool:
        return self.kernel is not None or self.match is not None


class Owners(dict[str, Cluster]):
    """Maps each operator to its cluster. `order` holds the source position of every operator, and `spans` the first and last position of each cluster
    with several operators. `before` holds, for each write in place, the operators that read what it overwrites."""

    def __init__(self, order: dict[str, int], before: dict[str, list[str]]):
        super().__init__()
        self.order, self.before = order, before
        self.after: dict[str, set[str]] = {}
        for name, readers in before.items():
            for reader in readers:
                self.after.setdefault(reader, set()).add(name)
        self.spans: dict[int, tuple[int, int]] = {}

    def put(self, cluster: Cluster) -> None:
        for name in cluster.members:
            if name in self:
                self.spans.pop(id(self[name]), None)
        self.update(dict.fromkeys(cluster.members, cluster))
        if len(cluster.members) > 1:
            self.spans[id(cluster)] = self.span(cluster.members)

    def span(self, members: list[str]) -> tuple[int, int]:
        places = [self.order[name] for name in members]
        return min(places), max(places)


def partition(network: Network, setting: families.Setting | None = None) -> list[Cluster]:
    """Returns the clusters in an executable order. Views and constants belong to no cluster, because they cost nothing or are printed where they are
    read."""
    in_place = _written_in_place(network, setting)
    while True:
        clusters = _clusters(network, setting, in_place)
        impossible = _impossible(network, clusters, in_place)
        if not impossible:
            return clusters
        in_place -= impossible


def _clusters(network: Network, setting: families.Setting | None, in_place: set[str]) -> list[Cluster]:
    before = {name: sorted(old_readers(network, name)) for name in in_place}
    owner = Owners({name: at for at, name in enumerate(network.nodes)}, before)
    for name, node in network.nodes.items():
        if name in owner or network.is_view(name) or node.op in SPLITS or short(node) in CONSTANTS or network.of_weights(name):
            continue
        if name in in_place:
            owner.put(Cluster([name], reason=IN_PLACE))
            continue
        match, declined = families.find(network, node, setting)
        if match is not None and setting is not None:
            _anchor(network, owner, match, setting)
            continue
        if _in_place(network, owner, node):
            cluster = Cluster([name], reason="its parts are computed where they belong")
        elif placing(network, node) is not None and (setting is None or not setting.at_places):
            cluster = Cluster([name], reason=f"{short(node)} adds up in order in the library")
        elif fusible(network, name):
            cluster = _alone(network, unit(network, name))
        else:
            cluster = Cluster(members=[name], reason=declined or f"{short(node)} is the library's")
        owner.put(cluster)
        if cluster.kernel is None:
            continue
        for producer in _producers(network, cluster, owner):
            _merge(network, owner, producer, owner[name], setting)
    _siblings(network, owner, setting)
    for cluster in _distinct(owner):
        if cluster.kernel is not None and len(cluster.members) == 1 and not cluster.kernel.reduces and _work(cluster.kernel) < TINY:
            cluster.kernel, cluster.reason = None, "too small for a kernel of its own"
        elif len(cluster.members) == 1 and network.nodes[cluster.members[0]].op == CAT:
            cluster.kernel, cluster.reason = None, "cat is the library's, where nothing is computed with it"
    return _sorted(network, owner)


def _written_in_place(network: Network, setting: families.Setting | None) -> set[str]:
    """Returns the operators that the library performs in the memory of their first argument. If a kernel could perform an operator along with others,
    the write must be a small part of a tensor whose traffic takes longer than one more launch."""
    found = {name for name in network.overwrites if not fusible(network, name) or _better_in_place(network, name, setting)}
    return {name for name in found if not network.overwrites[name].then or network.overwrites[name].then in found}


def _better_in_place(network: Network, name: str, setting: families.Setting | None) -> bool:
    if placing(network, network.nodes[name]) is not None:
        return setting is None or not setting.at_places  # otherwise, a kernel adds the terms in place
    write = network.overwrites[name]
    small = bool(write.part) or write.written * SMALL <= count(network.spec(write.source))
    rewriting = 2 * size_bytes(network.spec(write.source))
    return small and (setting is None or setting.figures.memory_ms(rewriting) * 1e3 > setting.figures.launch_us)


def _impossible(network: Network, clusters: list[Cluster], in_place: set[str]) -> set[str]:
    """Returns the writes in place that would run before a reader of the old contents or after a reader of the new ones. This happens if a kernel
    reads both."""
    place = {name: at for at, cluster in enumerate(clusters) for name in cluster.members}
    found = set()
    for name in in_place:
        if any(place[one] >= place[name] for one in old_readers(network, name)) or any(place[one] <= place[name] for one in network.readers(name)):
            found.add(name)
    return found


def _in_place(network: Network, owner: Owners, node: Node) -> bool:
    """Returns whether the operator concatenates channels and a family can write one of the parts directly into place, which can make the
    concatenation unnecessary."""
    rank = len(node.outputs[0].shape) if node.op == CAT else 0
    if rank < 3 or plain(node.args[1] if len(node.args) > 1 else 0) % rank != 1:
        return False
    makers = [owner.get(part["ref"]) for part in node.args[0]]
    return any(maker is not None and maker.match is not None and maker.match.family in families.INTO_PARTS for maker in makers)


def _alone(network: Network, members: list[str]) -> Cluster:
    try:
        return Cluster(members, build(network, members))
    except Refused as refusal:
        return Cluster(members, None, str(refusal))


def _producers(network: Network, cluster: Cluster, owner: Owners) -> list[Cluster]:
    """Returns the clusters that have a kernel (of the IR or of a family) and compute values that `cluster` reads, latest first."""
    found: list[Cluster] = []
    for member in cluster.members:
        for name in _sources(network, member):
            other = owner.get(name)
            if other is not None and other is not cluster and other.own and all(other is not f for f in found):
                found.append(other)
    return list(reversed(found))


def _sources(network: Network, name: str) -> list[str]:
    """Returns the values that own their memory and that operator `name` reads, directly or through views."""
    result = []
    for source in refs([network.nodes[name].args, list(network.nodes[name].kwargs.values())]):
        if source in network.nodes:
            node = network.nodes[source]
            if network.is_view(source) or node.op in SPLITS:
                result.extend(_sources(network, source))
            else:
                result.append(source)
    return result


def _anchor(network: Network, owner: Owners, match: families.Match, setting: families.Setting) -> None:
    """Creates the cluster of a family's anchor. The cluster includes the pointwise producers of the anchor's inputs if the kernel can compute them on
    load."""
    cluster = Cluster(list(match.members), match=match, shape=tuple(network.spec(match.value).shape))
    owner.put(cluster)
    for value in match.prologue:
        producer = owner.get(value)
        if producer is None or producer.kernel is None or producer.kernel.reduces:
            continue
        if match.recompute > 1 and any(op.kind in DEAR for op in producer.kernel.ops.values()):
            continue
        _join(network, owner, owner[match.anchor], producer, setting)


def _join(network: Network, owner: Owners, a: Cluster, b: Cluster, setting: families.Setting | None) -> bool:
    """Merges the pointwise cluster `b` into a family's kernel, as a prologue or as part of its tail."""
    if setting is None or a.match is None or b.kernel is None or b.kernel.reduces:
        return False
    members = sorted([*a.members, *b.members], key=owner.order.__getitem__)
    try:
        families.make_work(network, a.match, members, setting)
    except Refused:
        return False
    return _replace(network, owner, Cluster(members, match=a.match, shape=a.shape))


def _replace(network: Network, owner: Owners, merged: Cluster) -> bool:
    """Replaces the clusters of the members of `merged` with `merged`, unless that would create a cycle."""
    if _comes_back(network, owner, merged):
        return False
    owner.put(merged)
    return True


def _comes_back(network: Network, owner: Owners, merged: Cluster) -> bool:
    """Returns whether computing a value that the cluster reads requires a value that the cluster produces, in which case neither could run first.

    A cluster that starts after all of these members in source order can only lead back through a cluster that has operators before and after them. If
    there is no such cluster, the search skips all clusters that start after the members.
    """
    inside, (_, last) = set(merged.members), owner.span(merged.members)
    within = {id(owner[name]) for name in merged.members if name in owner}
    across = any(first <= last < end for key, (first, end) in owner.spans.items() if key not in within)
    seen: set[str] = set()

    def behind(members: list[str]) -> list[list[str]]:
        """For each reader of `members` outside the cluster, returns the operators that are computed together with it."""
        found = []
        for name in members:
            for reader in _followers(network, owner, name):
                if reader in seen or reader in inside:
                    continue
                group = owner[reader].members if reader in owner else [reader]
                seen.update(group)
                if across or owner.span(group)[0] <= last:
                    found.append(group)
        return found

    waiting = behind(merged.members)
    while waiting:
        group = waiting.pop()
        if any(not inside.isdisjoint(_followers(network, owner, name)) for name in group):
            return True
        waiting += behind(group)
    return False


def _followers(network: Network, owner: Owners, name: str) -> set[str]:
    """Returns the operators that must run after `name`, including those that overwrite what it reads."""
    return network.followers(name) | owner.after.get(name, set())


def _merge(network: Network, owner: Owners, a: Cluster, b: Cluster, setting: families.Setting | None) -> bool:
    if a is b or not a.own or not b.own or (a.match and b.match):
        return False
    if a.match or b.match:
        return _join(network, owner, a if a.match else b, b if a.match else a, setting)
    assert a.kernel is not None and b.kernel is not None, "what is ours without a match has a kernel"
    if len(a.members) + len(b.members) > MOST_OPERATORS:
        return False
    small, large = sorted((_work(a.kernel), _work(b.kernel)))
    smaller = a.kernel if _work(a.kernel) == small else b.kernel
    if small * 4 <= large and not smaller.reduces and any(op.kind in DEAR for op in smaller.ops.values()):
        return False  # it would be recomputed for every element to which it is broadcast
    members = sorted([*a.members, *b.members], key=owner.order.__getitem__)
    try:
        kernel = build(network, members)
    except Refused:
        return False
    return _replace(network, owner, Cluster(members, kernel))


def _siblings(network: Network, owner: Owners, setting: families.Setting | None) -> None:
    """Merges kernels that have the same domain and read the same large tensor, so that they share one pass over it."""
    readers: dict[tuple[int, str], list[Cluster]] = {}
    clusters = [cluster for cluster in _distinct(owner) if cluster.kernel is not None]
    place = {id(cluster): at for at, cluster in enumerate(clusters)}
    for cluster in clusters:
        for key in _passes(cluster, large=False):
            readers.setdefault(key, []).append(cluster)
    waiting = list(reversed(clusters))
    while waiting:
        a = waiting.pop()
        if owner[a.members[0]] is not a:
            continue
        partners = {id(b): b for key in _passes(a, large=True) for b in readers[key] if b is not a and owner[b.members[0]] is b}
        later = sorted((b for b in partners.values() if place[id(b)] > place[id(a)]), key=lambda b: place[id(b)])
        for b in later[:MOST_SIBLINGS]:
            if _merge(network, owner, a, b, setting):
                merged = owner[a.members[0]]
                clusters.append(merged)  # keeps the object alive, so that its id stays unique
                place[id(merged)] = place[id(a)]
                for key in _passes(merged, large=False):
                    readers.setdefault(key, []).append(merged)
                waiting.append(merged)
                break


def _passes(cluster: Cluster, large: bool) -> list[tuple[int, str]]:
    """Returns the tensors that the cluster's kernel reads, each with the size of the kernel's domain. `large` restricts the result to tensors of at
    least half that size."""
    assert cluster.kernel is not None, "only kernels are siblings"
    work = _work(cluster.kernel)
    return [(work, one.value) for one in cluster.kernel.arguments.values() if one.read and (not large or one.elements * 2 >= work)]


def _work(kernel: Kernel) -> int:
    return product(kernel.sizes)


def _distinct(owner: Owners) -> list[Cluster]:
    return list({id(cluster): cluster for cluster in owner.values()}.values())


def _sorted(network: Network, owner: Owners) -> list[Cluster]:
    """Returns the clusters in an order that is as close to the source order as the dependencies allow."""
    clusters = sorted(_distinct(owner), key=lambda c: owner.order[c.members[-1]])
    done: list[Cluster] = []
    placed: set[int] = set()

    def place(cluster: Cluster) -> None:
        if id(cluster) in placed:
            return
        placed.add(id(cluster))
        for member in cluster.members:
            drawn = [network.drawn_before[member]] if member in network.drawn_before else []
            for source in [*drawn, *_sources(network, member), *owner.before.get(member, [])]:
                if source in owner and owner[source] is not cluster:
                    place(owner[source])
        done.append(cluster)

    for cluster in clusters:
        place(cluster)
    return done
