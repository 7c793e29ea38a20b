"""Divides the plan's groups between kernels and the library, according to options and refusals."""

from __future__ import annotations

from compiler.graph.network import Network
from compiler.graph.placing import placing
from compiler.kernel.builder import Refused
from compiler.options import Options
from compiler.planning.plan import CompilerPlan, Group, word, work_of


class Shares:
    """`refused` holds the reason for each group that is wholly or partly left to the library."""

    def __init__(self, plan: CompilerPlan, network: Network, options: Options):
        self.plan, self.network, self.options = plan, network, options
        self.refused: dict[str, str] = {}

    def of(self, group: Group) -> list[Group]:
        """Splits a family's group if its strategy is disabled: the library computes the anchor, and kernels of the IR compute the surrounding
        operators."""
        if not group.family:
            return self._without_sums(group)
        if self.options.on("leave-to-library", group.id):
            return [group.model_copy(update={"family": "", "space": "pytorch"})]
        try:
            work = work_of(self.plan, self.network, group, self.options)
        except Refused as refusal:
            self.refused[group.id] = str(refusal)
            if self.network.last and group.anchor in group.operators:  # the kernel expects images in the default layout
                at = group.operators.index(group.anchor)
                return self._cut(group, group.operators[:at], [group.anchor], group.operators[at + 1 :])
            return [group.model_copy(update={"family": "", "space": "pytorch"})]
        if self.options.on(group.strategies[0], group.id):
            return [group]
        self.refused[group.id] = "given back to the library, which was faster here"
        anchor = list(work.match.members)
        late = [name for name in group.operators if name not in anchor and name not in work.early]
        return self._cut(group, [name for name in group.operators if name in work.early], anchor, late)

    def _without_sums(self, group: Group) -> list[Group]:
        """Separates sums at computed positions that are left to the library. They run after the kernel that computes their terms."""
        if "atomic-sums" not in group.strategies or self.options.on("atomic-sums", group.id) or self.options.on("leave-to-library", group.id):
            return [group]
        sums = [name for name in group.operators if placing(self.network, self.network.nodes[name]) is not None]
        self.refused[group.id] = "sums at an index are given back to the library, which was faster here"
        return self._cut(group, [name for name in group.operators if name not in sums], sums, [])

    def _cut(self, group: Group, early: list[str], anchor: list[str], late: list[str]) -> list[Group]:
        """Puts the operators before and after a family's anchor into kernels of the IR and leaves the anchor to the library."""
        return [
            group.model_copy(update={"family": "", "operators": names, "space": space, "strategies": ["fuse-pointwise", "vectorise"],
                                     "kinds": [word(self.network.nodes[name]) for name in names]})
            for names, space in ((early, "own kernel"), (anchor, "library"), (late, "own kernel")) if names
        ]  # fmt: skip

    def is_own(self, group: Group) -> bool:
        """Returns whether a kernel computes the group. Records why a group is left to the library although a kernel could compute it."""
        if group.family:
            return True
        if group.space != "own kernel":
            return False
        gate = next((s for s in ("fuse-row-reduction", "fuse-pointwise") if s in group.strategies), "")
        if self.options.on("leave-to-library", group.id) or not self.options.on(gate, group.id):
            self.refused[group.id] = "given back to PyTorch, which was faster here"
            return False
        return True
