"""Writes out a loop over experts as grouped products: the rows are sorted by expert, and one operator computes all experts.

    for e in range(experts):                            order = argsort(picked)
        rows, place = where(picked == e)          =>    rows, place = order // k, order % k
        out[rows] += expert_e(x[rows]) * w[rows, place] out[rows] += experts(x[rows], where each begins) * w[rows, place]

Sizes then no longer depend on the routing, and the host does not read any values.
"""

# sandboxed: reads graphs of the models that tasks define

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from typing import Any

from verifier.graph import GROUPED, ROUTED, Node
from verifier.parties.capturing.expert_weights import Passes, Stacks
from verifier.parties.capturing.loop_nodes import Unlike, free_name, reads, renamed
from verifier.parties.capturing.routing import PLACE
from verifier.parties.capturing.row_wise import COPIES, CUTS, MOVES, NORMS, is_pointwise, is_random, keeps_rows, operator_name
from verifier.parties.capturing.selection import WHOLE_NUMBERS, Selection, distinct, read_selection
from verifier.parties.capturing.written import Written

WHOLE = "whole:"  # prefix for values of the whole graph, which might have the same name as a value of the pass
PRODUCTS = ("linear", "matmul", "mm", "addmm")


@dataclass
class Writer:
    """Writes out one loop. `values` maps the inputs of a pass to values of the whole graph; `weights` holds the weights of all experts."""

    passes: Passes
    values: dict[str, Any]
    weights: dict[str, Any]
    out: Written
    rows: dict[str, int] = field(default_factory=dict)  # values with one row per pair -> the axis of the rows
    places: dict[str, tuple[int, int]] = field(default_factory=dict)  # values that index each pair -> (after, size)
    columns: dict[str, list[str]] = field(default_factory=dict)  # values that consist only of such indices -> those indices
    varying: set[str] = field(default_factory=set)  # values that differ between passes and have no rows
    selection: Selection | None = None

    def __post_init__(self) -> None:
        one, other = self.passes.one, self.passes.other
        self.nodes = {node.name: node for node in one.nodes}
        self.others = {node.name: node for node in other.nodes}
        self.specs = {n.name: n.outputs[0] for n in one.nodes if n.outputs} | {e.name: e.spec for e in one.inputs if e.spec}
        sizes = [(node.outputs[0].shape[0], self.others[node.name].outputs[0].shape[0]) for node in one.nodes if node.op == PLACE]
        self.each = sizes[0] if sizes else (0, 0)  # rows in each of the two passes
        self.varying |= set(self.passes.state)
        self.stacks = Stacks(self.passes, self.values, self.weights, self.varying, self.out)

    # -- the pass -----------------------------------------------------------------------------------------------------------

    def written(self) -> dict[str, Any]:
        """Returns the new values of the results. Raises `Unlike` if a pass does more than process each of its rows independently."""
        ends = {end: base for base, end in self.passes.results.items()}
        sums = {base: self._sum(base, end) for base, end in self.passes.results.items()}
        inner = {name for one in sums.values() for name in one.inner}
        for node in self.passes.one.nodes:
            if node.name in inner or node.name in ends or operator_name(node) == "_assert_tensor_metadata":
                continue
            self._take(node)
        if self.selection is None:
            raise Unlike("no pass selects the rows of an expert")
        for mask in self.passes.asked:
            asked = self._selection(mask)
            if (asked.source, asked.first) != (self.selection.source, self.selection.first):
                raise Unlike("a pass is skipped for a reason other than having no rows")
        return {base: self._added(base, one) for base, one in sums.items()}

    def _take(self, node: Node) -> None:
        read = reads(node)
        if touched := set(read) & set(self.passes.results):
            raise Unlike(f"{sorted(touched)[0]} is read while the passes modify it")
        if is_random(node):
            raise Unlike(f"{operator_name(node)} draws random numbers in each pass")
        if node.op == PLACE:
            self._place(node)
        elif any(name in self.rows for name in read):
            self._rowed(node)
        elif self._axis(node) is not None:
            raise Unlike(f"{operator_name(node)} creates rows from no input")
        elif node.args != self.others[node.name].args or node.kwargs != self.others[node.name].kwargs or set(read) & self.varying:
            self.varying.add(node.name)
        else:
            self._emit_as(node)

    def _axis(self, node: Node) -> int | None:
        """Returns the axis along which a value has rows, that is, the axis along which two passes differ. Returns None if there is none."""
        mine, others = node.outputs, self.others[node.name].outputs
        axes: set[int] = set()
        for a, b in zip(mine, others, strict=True):
            if len(a.shape) != len(b.shape) or a.dtype != b.dtype:
                raise Unlike("two passes have values of different types")
            differ = [at for at, (m, n) in enumerate(zip(a.shape, b.shape, strict=True)) if m != n]
            axes |= set(differ)
            if any((a.shape[at], b.shape[at]) != self.each for at in differ):
                raise Unlike(f"{operator_name(node)} joins the rows with another axis")
        if len(axes) > 1:
            raise Unlike(f"{operator_name(node)} pairs rows with rows")
        return axes.pop() if axes else None

    # -- rows ---------------------------------------------------------------------------------------------------------------

    def _selection(self, mask: str) -> Selection:
        def number(node: Node) -> int | None:
            """Returns the number of the first pass if the operator's last argument is the number of the pass."""
            other = self.others.get(node.name)
            mine, its = (one.args[-1] if one is not None and node.name in self.nodes else None for one in (node, other))
            return mine if type(mine) is int and type(its) is int and its == mine + 1 and node.args[:-1] == (other or node).args[:-1] else None

        def node_of(name: str) -> Node | None:
            if name in self.nodes:
                return self.nodes[name]
            name = name if name.startswith(WHOLE) else WHOLE + self.values[name]["ref"] if name in self.values else ""
            node = self.out.maker(name.removeprefix(WHOLE))
            names = {read: {"ref": WHOLE + read} for read in reads(node)} if node is not None else {}
            return node and node.model_copy(update={"name": name, "args": renamed(node.args, names)})

        def shape_of(name: str) -> tuple[int, ...]:
            return tuple((self.out.spec_of(name.removeprefix(WHOLE)) if name.startswith(WHOLE) else self.specs[name]).shape)

        found = read_selection(mask, number, node_of, shape_of)
        if found.source in self.varying:
            raise Unlike("each pass chooses the experts of the rows again")
        source = self.values[found.source]["ref"] if found.source in self.values else found.source.removeprefix(WHOLE)
        return Selection(source, found.shape, found.first, found.axes, found.merged)

    def _place(self, node: Node) -> None:
        mask = node.args[0]["ref"]
        found = self._selection(mask)
        if self.selection is None:
            self.selection = found
            self._begin(node, found)
        if (found.source, found.first, found.merged) != (self.selection.source, self.selection.first, self.selection.merged):
            raise Unlike("a pass chooses its rows in two ways")
        after, size = found.of_axis(tuple(self.specs[mask].shape), node.args[1])
        self.places[node.name], self.rows[node.name], self.columns[node.name] = (after, size), 0, [node.name]
        index = self.order
        if after > 1:
            index = self.out.emit(node, "aten.div.Tensor_mode", [index, after], (self.pairs,), "int64", {"rounding_mode": "floor"})
        if after * size < self.pairs:
            index = self.out.emit(node, "aten.remainder.Scalar", [index, size], (self.pairs,), "int64")
        self.values[node.name] = index

    def _begin(self, node: Node, chosen: Selection) -> None:
        """Sorts the rows by expert and computes the start of each expert's rows."""
        kind = self.out.spec_of(chosen.source).dtype
        if kind not in WHOLE_NUMBERS:
            raise Unlike("experts are chosen by something other than whole numbers")
        pairs = self.pairs = chosen.pairs
        first, last = chosen.first, chosen.first + self.passes.experts
        self.distinct, self.bounded = distinct(chosen.source, self.out.maker, lambda name: tuple(self.out.spec_of(name).shape), last)
        self.bounded &= first == 0
        if chosen.merged and not self.distinct and chosen.shape[-1] > 1:
            raise Unlike("a row might have an expert twice, which the loop counts once")
        make = functools.partial(self.out.emit, node)
        flat = make("aten.view.default", [{"ref": chosen.source}, [pairs]], (pairs,), kind)
        if kind != "int64":
            flat = make("aten._to_copy.default", [flat], (pairs,), "int64", {"dtype": "torch.int64"})
        size = 2 * pairs + last - first + 1
        routed = make(ROUTED, [flat, first, last - first], (size,), "int64")
        cuts = (0, pairs), (pairs, 2 * pairs), (2 * pairs, size)
        self.order, self.expert, self.begins = (make("aten.slice.Tensor", [routed, 0, *cut], (cut[1] - cut[0],), "int64") for cut in cuts)

    @functools.cached_property
    def inside(self) -> Any:
        """Returns a mask of the rows that any expert takes."""
        assert self.selection is not None
        first, node, size = self.selection.first, self.passes.one.nodes[-1], (self.pairs,)
        low = self.out.emit(node, "aten.ge.Scalar", [self.expert, first], size, "bool")
        high = self.out.emit(node, "aten.lt.Scalar", [self.expert, first + self.passes.experts], size, "bool")
        return self.out.emit(node, "aten.logical_and.default", [low, high], size, "bool")

    @functools.cached_property
    def own(self) -> Any:
        """Returns the index of each row's expert among all stacked weights."""
        assert self.selection is not None
        node, size, index = self.passes.one.nodes[-1], (self.pairs,), self.expert
        if self.selection.first:
            index = self.out.emit(node, "aten.sub.Tensor", [index, self.selection.first], size, "int64")
        return index if self.bounded else self.out.emit(node, "aten.clamp.default", [index, 0, self.passes.experts - 1], size, "int64")

    def _rowed(self, node: Node) -> None:
        name, axis = operator_name(node), self._axis(node)
        if node.op == "getitem" or axis is not None and is_pointwise(node):
            self._pointwise(node, axis if axis is not None else self.rows[node.args[0]["ref"]])
        elif axis is None:
            raise Unlike(f"{name} combines the rows of a pass")
        elif node.op == "aten.index.Tensor":
            self._gathered(node, axis)
        elif node.op == "aten.index_select.default":
            along = node.args[1] % len(self.specs[node.args[0]["ref"]].shape)
            self._gathered(node.model_copy(update={"op": "aten.index.Tensor", "args": [node.args[0], [*[None] * along, node.args[2]]]}), axis)
        elif name in PRODUCTS:
            self._product(node, axis)
        elif name == "cat":
            self._joined(node, axis)
        else:
            source = node.args[0].get("ref") if node.args and isinstance(node.args[0], dict) else None
            others = [read for read in reads(node) if read != source]
            if source not in self.rows or any(read in self.rows for read in others):
                raise Unlike(f"{name} may mix rows")
            if not keeps_rows(node, self.specs[source], self.rows[source], node.outputs[0], axis):
                raise Unlike(f"{name} may mix rows")
            if any(read in self.varying for read in others):
                self._scaled_norm(node, axis)
            else:
                self._emit_as(node, axis)

    def _pointwise(self, node: Node, axis: int) -> None:
        rank = len(node.outputs[0].shape)
        names: dict[str, Any] = {}
        if node.op == "getitem":
            return self._emit_as(node, axis)
        for read in reads(node):
            shape = self.specs[read].shape
            from_end = len(shape) - (rank - axis)  # position of the rows in this argument
            if read in self.rows:
                if self.rows[read] != from_end:
                    raise Unlike(f"{operator_name(node)} pairs rows with another axis")
            elif from_end >= 0 and shape[from_end] != 1:
                raise Unlike(f"{operator_name(node)} pairs rows with another axis")
            elif read in self.varying:
                names[read] = self._of_rows(node, read, rank - axis - 1)
        self._emit_as(node, axis, names)

    def _of_rows(self, node: Node, name: str, after: int) -> Any:
        """Expands a value that differs between experts to one value per row. `after` is the number of axes after the axis of the rows."""
        shape = tuple(self.specs[name].shape)
        inner = (1,) * (after - len(shape)) + shape[max(len(shape) - after, 0) :]
        stack, dtype = self.stacks.stacked(name), self.specs[name].dtype
        taken = self.out.emit(node, "aten.index.Tensor", [stack, [self.own]], (self.pairs, *shape), dtype)
        if inner == shape:
            return taken
        return self.out.emit(node, "aten.view.default", [taken, [self.pairs, *inner]], (self.pairs, *inner), dtype)

    def _gathered(self, node: Node, axis: int) -> None:
        """Writes `x[rows]` or `w[rows, place]`, or the same for a tensor that differs between experts."""
        source, index = node.args[0]["ref"], node.args[1]
        wanted = [part["ref"] for part in index if part is not None]
        if source in self.rows or any(self.rows.get(name) != 0 or len(self.specs[name].shape) != 1 for name in wanted):
            raise Unlike("values are selected within rows, or by something other than one index per row")
        if source not in self.varying:
            return self._emit_as(node, axis)
        if index[0] is None or None in index[: len(wanted)]:
            raise Unlike("a tensor that each expert has has its rows along a later axis")
        stack = self.stacks.stacked(source)
        args = [stack, [self.own, *(renamed(part, self.values) for part in index)]]
        self.values[node.name] = self.out.emit(node, node.op, args, self._shape(node, axis), node.outputs[0].dtype)
        self.rows[node.name] = axis

    def _joined(self, node: Node, axis: int) -> None:
        parts = [part["ref"] for part in node.args[0]]
        along = (node.args[1] if len(node.args) > 1 else 0) % len(node.outputs[0].shape)
        if along == axis or any(self.rows.get(part) != axis for part in parts):
            raise Unlike("cat joins rows with other values")
        self._emit_as(node, axis)

    def _scaled_norm(self, node: Node, axis: int) -> None:
        """Writes a normalisation in which each expert has its own scale and shift."""
        name, rest = operator_name(node), [*node.args[2:], None, None]
        if name not in NORMS:
            raise Unlike(f"{name} has an argument that differs between experts")
        bare = node.model_copy(update={"args": [*node.args[:2], None, *([None, *node.args[4:]] if name == "layer_norm" else node.args[3:])]})
        self._emit_as(bare, axis)
        rank, shape, dtype = len(node.outputs[0].shape), self._shape(node, axis), node.outputs[0].dtype
        for op, argument in (("aten.mul.Tensor", rest[0]), ("aten.add.Tensor", rest[1] if name == "layer_norm" else None)):
            if argument is not None:
                read = argument["ref"]
                value = self._of_rows(node, read, rank - axis - 1) if read in self.varying else self.values[read]
                self.values[node.name] = self.out.emit(node, op, [self.values[node.name], value], shape, dtype)

    # -- products -----------------------------------------------------------------------------------------------------------

    def _product(self, node: Node, axis: int) -> None:
        name, args = operator_name(node), list(node.args)
        bias = args.pop(0) if name == "addmm" else args[2] if name == "linear" and len(args) > 2 else None
        x, weight = args[0]["ref"], args[1]["ref"]
        rank = len(self.specs[x].shape)
        if x not in self.rows or weight in self.rows or self.rows[x] == rank - 1 or node.kwargs or bias is not None and bias["ref"] in self.rows:
            raise Unlike(f"{name} may mix rows")
        if not {weight, bias["ref"] if bias else ""} & self.varying:
            return self._emit_as(node, axis)
        shape, columns, depth = self._shape(node, axis), node.outputs[0].shape[-1], self.specs[x].shape[-1]
        if math.prod(shape[:-1]) != self.pairs or len(self.specs[weight].shape) != 2:
            raise Unlike(f"{name} has several rows for one row of the pass")
        flat, dtype = (self.pairs, columns), node.outputs[0].dtype
        rows = (
            self.values[x]
            if rank == 2
            else self.out.emit(node, "aten.view.default", [self.values[x], [self.pairs, depth]], (self.pairs, depth), dtype)
        )
        if weight in self.varying:
            found = self.out.emit(node, GROUPED, [rows, self.stacks.by_columns(node, weight, name == "linear"), self.begins], flat, dtype)
        else:
            op = node.op if name == "linear" else "aten.mm.default"
            found = self.out.emit(node, op, [rows, self.values[weight]], flat, dtype)
        if bias is not None:
            value = self._of_rows(node, bias["ref"], 1) if bias["ref"] in self.varying else self.values[bias["ref"]]
            found = self.out.emit(node, "aten.add.Tensor", [found, value], flat, dtype)
        self.values[node.name] = found if len(shape) == 2 else self.out.emit(node, "aten.view.default", [found, list(shape)], shape, dtype)
        self.rows[node.name] = axis

    # -- results ------------------------------------------------------------------------------------------------------------

    def _sum(self, base: str, end: str) -> Sum:
        """Returns how a pass changes a result. Raises `Unlike` unless the pass adds rows to it or sets rows in it."""
        node = self.nodes.get(end)
        if node is None or not node.args or node.args[0] != {"ref": base}:
            raise Unlike("the passes change something other than rows of a tensor")
        if node.op == "aten.index_add.default" and node.args[1] == 0 and node.kwargs.get("alpha", 1) == 1:
            return Sum(node, [node.args[2]], node.args[3], True, True)
        if node.op != "aten.index_put.default" or None in node.args[1]:
            raise Unlike(f"{operator_name(node)} changes a result other than by adding rows to it")
        index, value = node.args[1], node.args[2]
        if len(node.args) > 3 and node.args[3]:
            return Sum(node, index, value, True, True)
        made = self.nodes.get(value["ref"])
        reads = [argument["ref"] for argument in made.args] if made is not None and made.op == "aten.add.Tensor" and not made.kwargs and all(
            isinstance(argument, dict) for argument in made.args) else []  # fmt: skip
        for at, read in enumerate(reads):
            before = self.nodes.get(read)
            if made is not None and before is not None and before.op == "aten.index.Tensor" and before.args == [{"ref": base}, index]:
                return Sum(node, index, {"ref": reads[1 - at]}, True, False, [made.name, read])
        return Sum(node, index, value, False, False)

    def _added(self, base: str, one: Sum) -> Any:
        """Returns the result with the rows of all experts; rows without an expert leave it unchanged."""
        assert self.selection is not None
        node, value = one.node, one.value["ref"]
        read = [part["ref"] for part in one.index]
        if value not in self.rows or self.rows[value] != 0 or any(name not in self.places for name in read):
            raise Unlike("a pass adds something other than its rows")
        covered = math.prod(self.places[name][1] for name in read) * (self.selection.shape[-1] if self.selection.merged else 1) == self.pairs
        if not one.repeated and not (covered or self.distinct and not one.sets and self._leaves_out_last(read)):
            raise Unlike("a row might have an expert twice, which the loop counts once")
        if not one.adds and not (covered and (not self.selection.merged or self.selection.shape[-1] == 1)):
            raise Unlike("several experts set the same rows in turn")
        shape = tuple(self.specs[base].shape)
        size, rest, dtype = math.prod(shape[: len(read)]), shape[len(read) :], self.specs[base].dtype
        whole, at = (self.pairs, *rest), self._flat(node, read, shape)
        flat = (
            self.values[base]
            if len(read) == 1
            else self.out.emit(node, "aten.view.default", [self.values[base], [size, *rest]], (size, *rest), dtype)
        )
        made, own = self.values[value], self.specs[value]
        if own.dtype != dtype:
            if one.adds and not one.repeated and dtype in ("bfloat16", "float16"):
                raise Unlike(f"rows of {own.dtype} are added to a result of {dtype}")
            made = self.out.emit(node, "aten._to_copy.default", [made], (self.pairs, *own.shape[1:]), dtype, {"dtype": f"torch.{dtype}"})
        if (self.pairs, *own.shape[1:]) != whole:
            made = self.out.emit(node, "aten.expand.default", [made, list(whole)], whole, dtype)
        if not self.bounded:
            other = self.out.emit(node, "aten.full.default", [[], 0], (), dtype, {"dtype": f"torch.{dtype}", "device": "cpu"})
            if not one.adds:
                other = self.out.emit(node, "aten.index.Tensor", [flat, [at]], whole, dtype)
            inside = self.inside
            if rest:
                thin = (self.pairs, *(1 for _ in rest))
                inside = self.out.emit(node, "aten.view.default", [inside, list(thin)], thin, "bool")
            made = self.out.emit(node, "aten.where.self", [inside, made, other], whole, dtype)
        op, args = ("aten.index_add.default", [flat, 0, at, made]) if one.adds else ("aten.index_put.default", [flat, [at], made])
        done = self.out.emit(node, op, args, (size, *rest), dtype)
        return done if len(read) == 1 else self.out.emit(node, "aten.view.default", [done, list(shape)], shape, dtype)

    def _leaves_out_last(self, read: list[str]) -> bool:
        """Returns whether the index covers all axes but the last of the tensor that chooses the experts."""
        assert self.selection is not None
        afters = {self.places[name][0] for name in read}
        return math.prod(self.places[name][1] for name in read) * self.selection.shape[-1] == self.pairs and min(afters) == self.selection.shape[-1]

    def _flat(self, node: Node, read: list[str], shape: tuple[int, ...]) -> Any:
        """Returns the flat row index into a result whose rows extend along several axes."""
        found = self.values[read[0]]
        for at, name in enumerate(read[1:], start=1):
            found = self.out.emit(node, "aten.mul.Tensor", [found, shape[at]], (self.pairs,), "int64")
            found = self.out.emit(node, "aten.add.Tensor", [found, self.values[name]], (self.pairs,), "int64")
        return found

    # -- operators ----------------------------------------------------------------------------------------------------------

    def _shape(self, node: Node, axis: int) -> tuple[int, ...]:
        shape = node.outputs[0].shape
        return (*shape[:axis], self.pairs, *shape[axis + 1 :])

    def _emit_as(self, node: Node, axis: int | None = None, names: dict[str, Any] | None = None) -> None:
        """Emits the operator itself, applied to all rows together."""
        other, at = self.others[node.name], {**self.values, **(names or {})}
        args = node.args if axis is None else self._sized(node, node.args, other.args if node is self.nodes[node.name] else node.args)
        name = free_name(f"{node.name}_of_all", self.out.taken)
        outputs = node.outputs
        if axis is not None:
            if node.kwargs != other.kwargs:
                raise Unlike(f"{operator_name(node)} takes the number of the pass as a value")
            outputs = [
                spec.model_copy(update={"shape": (*spec.shape[:axis], self.pairs, *spec.shape[axis + 1 :]), "stride": None}) for spec in outputs
            ]
            self.rows[node.name] = axis
        kwargs = {key: renamed(value, at) for key, value in node.kwargs.items()}
        self.out.found.append(node.model_copy(update={"name": name, "args": renamed(args, at), "kwargs": kwargs, "outputs": outputs}))
        self.values[node.name] = {"ref": name}
        if axis is not None:
            self._follow(node)

    def _follow(self, node: Node) -> None:
        """Tracks a row index. It remains an index if it is only reshaped, or if it is concatenated with other indices and extracted again."""
        name, read = operator_name(node), reads(node)
        if not read or any(one not in self.columns for one in (read if name == "cat" else read[:1])):
            return
        found = self.columns[read[0]]
        if name == "cat":
            found = [column for one in read for column in self.columns[one]]
        elif name in ("select", "getitem"):
            found = [found[node.args[-1]]]
        elif name == "slice" and len(node.args) == 4:
            found = found[node.args[2] : node.args[3]]
        elif name not in (*MOVES, *COPIES, "unbind") and not (name in CUTS and len(found) == 1):
            return
        self.columns[node.name] = found
        if len(found) == 1 and len(node.outputs[0].shape) == 1:
            self.places[node.name], self.values[node.name] = self.places[found[0]], self.values[found[0]]

    def _sized(self, node: Node, one: Any, other: Any) -> Any:
        """Returns arguments in which the number of rows of a pass is replaced with the total number of rows."""
        if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
            return [self._sized(node, a, b) for a, b in zip(one, other, strict=True)]
        if one == other:
            return one
        sizes = operator_name(node) in (*CUTS, "expand")
        if sizes and type(one) is int and type(other) is int and (one, other) == self.each:
            return self.pairs
        raise Unlike(f"{operator_name(node)} takes the number of rows, or of the pass, as a value")


@dataclass
class Sum:
    """A change to a result: `value` is added to the rows that `index` selects (`adds`), or replaces them. `repeated` means that a row that is
    selected twice receives both values. `inner` lists the operators that this change replaces."""

    node: Node
    index: list[Any]
    value: Any
    adds: bool
    repeated: bool
    inner: list[str] = field(default_factory=list)

    @property
    def sets(self) -> bool:
        return not self.adds
