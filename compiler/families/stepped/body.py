"""Divides the work of one pass into pieces that a block computes one after another: products, operators over rows, and loops over elements.

All operators must work row by row: every value has the batch as its first axis, and no row reads another. Each piece leaves one value in shared
memory, where later pieces and the next pass read it. Pointwise operators are computed where they are read unless several pieces need them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from compiler.families.epilogue import Prologue, build_prologue
from compiler.families.stepped.passes import Passes, numbers_of
from compiler.families.stepped.pieces import Body, Loop, Operand, Pointer, Product, RowOperator, Slot, Table, Weight
from compiler.graph.constants import CONSTANTS, filled_with
from compiler.graph.ir import Access, Argument, Kernel
from compiler.graph.network import Network, count, plain, refs
from compiler.graph.reductions import reduction, short
from compiler.kernel.builder import Refused
from compiler.kernel.expressions import constant
from compiler.kernel.fuse import fusible
from verifier.graph import Node

PRODUCTS = ("linear", "mm", "matmul")
ROW_OPERATORS = ("layer_norm", "softmax", "log_softmax", "sum", "mean", "amax", "amin", "logsumexp", "linalg_vector_norm", "var", "std")
NUMBERS = ("float32", "int64", "int32")  # types of numbers that may differ from pass to pass
RESERVED = ("row", "at", "i", "step", "first", "rows", "value", "outside", "memory", "warp", "lane", "parts", "x", "out", "total", "most", "scale",
            "mean")  # fmt: skip


def body_of(network: Network, passes: Passes) -> Body:
    """Returns the pieces of a pass. Raises `Refused` if the operators do not work row by row or if one of them has no piece."""
    return _Maker(network, passes).made()


class _Maker:
    """Uses the second pass, because the first pass reads initial values where all others read the previous pass."""

    def __init__(self, network: Network, passes: Passes):
        self.network, self.passes = network, passes
        self.before, self.names = passes.names[0], passes.names[1]
        self.position = {name: at for at, name in enumerate(self.names)}
        self.earlier = {name: at for at, name in enumerate(self.before)}
        batch = next((network.spec(name).shape[:1] for name in self.names if not self._pointwise(name)), ())
        self.free = self._free_of_rows(batch)
        if not batch or any(network.spec(name).shape[:1] != batch for at, name in enumerate(self.names) if at not in self.free):
            raise Refused("the values of a pass do not all have the same number of rows")
        self.body = Body(len(passes.names), batch[0])
        self.carried = {at: self._slot(f"carried_{at}", self.names[at]) for at in sorted(passes.begins)}
        self.slots: dict[int, Slot] = {}
        self.kept = self._kept()

    def made(self) -> Body:
        body, passes = self.body, self.passes
        for at, name in enumerate(self.names):
            if at not in self.kept:
                continue
            into = self.slots[at] = self._slot(f"held_{at}", name)
            node = self.network.nodes[name]
            if not self._pointwise(name) and self._own_numbers_differ(at):
                raise Refused(f"a number of {short(node)} differs from pass to pass")
            if short(node) in PRODUCTS and not fusible(self.network, name):
                body.pieces.append(self._product(node, into))
            elif reduction(self.network, node) is not None:
                body.pieces.append(self._row_operator(node, into))
            else:
                body.pieces.append(self._loop(at, into))
        for at, slot in self.carried.items():
            body.carried.append((slot, self.slots[at]))
            body.begins.append(self._from_outside(passes.begins[at], slot))
        body.stacks = [(stack, self.slots[stack.position]) for stack in passes.stacks]
        body.others = [(stack, at, self._from_outside(value, slot)) for stack, slot in body.stacks for at, value in stack.others]
        body.finals = [(passes.names[-1][at], self.slots[at]) for at in passes.finals]
        return body

    def _from_outside(self, value: str, into: Slot) -> Loop:
        """Returns a loop over the rows of a value that exists before the first pass."""
        network = self.network
        while network.spec(value).shape[:1] != (self.body.batch,) and network.is_view(value) and network.layouts[value].contiguous:
            value = network.nodes[value].args[0]["ref"]
        node, spec = network.nodes.get(value), network.spec(value)
        filled = node is not None and short(node) in CONSTANTS
        if not filled and (spec.shape[:1] != (self.body.batch,) or count(spec) != self.body.batch * into.width):
            raise Refused("an initial value has another number of rows")
        loop = Loop(into, self._prologue(value, []), {})
        self._placed(loop, [loop.prologue.kernel], 0)
        return loop

    def _slot(self, name: str, value: str) -> Slot:
        spec = self.network.spec(value)
        if spec.dtype != "float32":
            raise Refused(f"a value of {spec.dtype} is needed from one piece of a pass to another")
        return Slot(name, count(spec) // spec.shape[0])

    def _own_numbers_differ(self, at: int) -> bool:
        nodes = [self.network.nodes[one[at]] for one in self.passes.names if one[at]]
        return len({str(numbers_of([node.args, list(node.kwargs.values())])) for node in nodes}) > 1

    def _pointwise(self, name: str) -> bool:
        return fusible(self.network, name) and reduction(self.network, self.network.nodes[name]) is None

    def _free_of_rows(self, batch: tuple[int, ...]) -> set[int]:
        """Returns the positions of values that are the same for all rows, such as the step size. Loops compute these values where they read them."""
        found: set[int] = set()
        for at, name in enumerate(self.names):
            node = self.network.nodes[name]
            bases = [self.network.base(one) for one in refs([node.args, list(node.kwargs.values())])]
            own = any(base in self.earlier or base in self.position and self.position[base] not in found for base in bases)
            if self._pointwise(name) and self.network.spec(name).shape[:1] != batch and not own:
                found.add(at)
        return found

    def _kept(self) -> set[int]:
        """Returns the positions of the values that stay in shared memory."""
        network = self.network
        found = {*self.passes.begins, *self.passes.finals, *(stack.position for stack in self.passes.stacks)}
        for at, name in enumerate(self.names):
            node = network.nodes[name]
            if not self._pointwise(name):
                found |= {at, *(self.position[base] for base in map(network.base, refs(node.args)) if base in self.position)}
            elif node.outputs[0].dtype == "float32" and at not in self.free:
                users = network.users[name]
                readers = [user for user in users if user in self.position]
                shape = network.spec(name).shape
                if len(readers) != 1 or len(users) != 1 or network.spec(readers[0]).shape != shape:
                    found.add(at)
        if found & self.free:
            raise Refused("a value without rows is needed as a whole")
        return found

    # -- pieces ---------------------------------------------------------------------------------------------------------------

    def _product(self, node: Node, into: Slot) -> Product:
        if any(not isinstance(one, dict) or "ref" not in one for one in node.args[:2]) or node.kwargs:
            raise Refused("a product in another form")
        x, weight = node.args[0]["ref"], node.args[1]["ref"]
        bias = node.args[2]["ref"] if len(node.args) > 2 and node.args[2] is not None else ""
        if len(self.network.spec(x).shape) != 2 or len(self.network.spec(weight).shape) != 2:
            raise Refused("a product of other than two matrices")
        matrix = self._weight(weight, node.name, transposed=short(node) == "linear")
        if bias and not self._steady(bias):
            raise Refused("a bias that forward computes")
        return Product(into, self._operand(x, node.name), matrix, bias)

    def _weight(self, value: str, reader: str, transposed: bool) -> Weight:
        layout = self.network.layouts[value]
        rows, columns = self.network.spec(value).shape
        if not self.network.made_once(layout.base) or self.network.spec(value).dtype != "float32":
            raise Refused("the weights of a product change from call to call")
        if self.network.layouts[self._twin(value, reader)] != layout:
            raise Refused("the weights of a product change from pass to pass")
        turned = layout.strides == (1, rows)
        if count(self.network.spec(layout.base)) == rows * columns and (turned or layout.contiguous):
            code = "{0}" if turned == transposed else "{0}.t()"
            code = code if len(self.network.spec(layout.base).shape) == 2 else ""
        else:
            code = ""
        if not code:
            code = f"{{0}}.contiguous().as_strided({(rows, columns)}, {tuple(layout.strides)}, {layout.offset})" + ".t()" * transposed
        return Weight(layout.base, f"{code}.contiguous()", *((columns, rows) if transposed else (rows, columns)))

    def _steady(self, value: str) -> bool:
        spec = self.network.spec(value)
        return self.network.made_once(value) and spec.dtype == "float32" and len(spec.shape) == 1

    def _operand(self, value: str, reader: str) -> Operand:
        """Returns the place of an operand in shared memory. An operand from outside is copied there by a separate piece."""
        layout, shape = self.network.layouts[value], tuple(self.network.spec(value).shape)
        if shape[:1] != (self.body.batch,):
            raise Refused(f"{reader} reads other rows than it computes")
        width = count(self.network.spec(value)) // shape[0]
        slot = self._slot_of(layout.base)
        if slot is None:
            slot = self._slot(f"{self._free('copied')}", value)
            loop = Loop(slot, self._prologue(value, []), {})
            varies = self.position[reader] in self.passes.varying
            later = [self._prologue(self._twin(value, reader, number), []).kernel for number in range(2, len(self.passes.names) if varies else 3)]
            zeroth = self._prologue(self._twin(value, reader, 0), []).kernel if varies else None
            self._placed(loop, [loop.prologue.kernel, *later], 1, zeroth)
            self.body.pieces.append(loop)
            return Operand(slot, 0, width)
        inner = tuple(layout.strides[1:])
        dense = all(size == 1 or stride == step for size, stride, step in zip(shape[1:], inner, _steps(shape[1:]), strict=True))
        if layout.strides[0] != slot.width or not dense or layout.offset + width > slot.width:
            raise Refused(f"{reader} reads other rows than it computes")
        return Operand(slot, layout.offset, width)

    def _free(self, name: str) -> str:
        return f"{name}_{sum(isinstance(piece, Loop) for piece in self.body.pieces)}"

    def _slot_of(self, base: str) -> Slot | None:
        if base in self.position:
            return self.slots[self.position[base]]
        return self.carried[self.earlier[base]] if base in self.earlier else None

    def _twin(self, value: str, reader: str, number: int = 2) -> str:
        """Returns the value that a reader in another pass reads in place of `value`."""
        at = self.position[reader]
        name = self.passes.names[number][at] or self.passes.names[number - 1][at]
        node, other = self.network.nodes[reader], self.network.nodes[name]
        mine, theirs = ([*refs([one.args, list(one.kwargs.values())])] for one in (node, other))
        return theirs[mine.index(value)]

    def _row_operator(self, node: Node, into: Slot) -> RowOperator:
        kind, value = short(node).strip("_"), node.args[0]["ref"]
        shape = tuple(self.network.spec(value).shape)
        if kind not in ROW_OPERATORS or len(shape) != 2:
            raise Refused(f"{kind} over other than the last of two axes")
        found = RowOperator(into, kind, self._operand(value, node.name))
        if kind == "layer_norm":
            if [plain(size) for size in node.args[1]] != [shape[1]]:
                raise Refused("a layer norm over other than the last of two axes")
            names = [one["ref"] if one is not None else "" for one in (*node.args[2:4], None, None)][:2]
            if any(name and not self._steady(name) for name in names):
                raise Refused("a layer norm's weights change from call to call")
            found.scale, found.shift = names
            found.eps = float(plain(node.args[4])) if len(node.args) > 4 else 1e-5
            return found
        inner = reduction(self.network, node)
        if inner is None or inner.inner != {(1, 0)} or inner.splits or node.kwargs.get("dtype") is not None:
            raise Refused(f"{kind} over other than the last of two axes")
        if kind in ("softmax", "log_softmax"):
            if any(one not in (None, False) for one in node.args[2:]):
                raise Refused(f"{kind} in another type")
        elif kind == "linalg_vector_norm":
            if len(node.args) > 1 and plain(node.args[1]) != 2 or len(node.args) > 4:
                raise Refused("a norm of another kind")
        elif kind in ("var", "std"):
            found.correction = self._correction(node)
            if not 0 <= found.correction < shape[1]:
                raise Refused(f"{kind} of too few elements")
        elif len(node.args) > 3:
            raise Refused(f"{kind} in another type")
        return found

    def _correction(self, node: Node) -> int:
        """Returns the number that a variance subtracts from the number of elements: an explicit number or, unless the operator disables the
        correction, 1."""
        unbiased = node.args[2] if len(node.args) > 2 else node.kwargs.get("unbiased")
        given = plain(node.kwargs.get("correction")) if node.op.endswith(".correction") else int(unbiased is not False)
        if given is not None and given != int(given):
            raise Refused(f"{short(node)} with a fraction as its correction")
        return 1 if given is None else int(given)

    def _loop(self, at: int, into: Slot) -> Loop:
        members = self._inlined(at)
        count_of = len(self.passes.names) if self.passes.varying & set(members) else 3
        kernels, first = [], None
        for number in range(1, count_of):
            own = self.passes.names[number]
            own = own if all(own[one] for one in members) else self.passes.names[number - 1]  # the last pass, of which nothing needs this value
            prologue = self._prologue(own[at], [own[one] for one in members])
            first = first or prologue
            kernels.append(prologue.kernel)
        assert first is not None
        loop = Loop(into, first, {})
        zeroth = None
        if self.passes.varying & set(members):
            zeroth = self._prologue(self.before[at], [self.before[one] for one in members], self.passes.initial).kernel
        self._placed(loop, kernels, 1, zeroth)
        return loop

    def _inlined(self, at: int) -> list[int]:
        """Returns the positions of the operators that a loop computes for the value at `at`, in order."""
        found, waiting = {at}, [at]
        while waiting:
            node = self.network.nodes[self.names[waiting.pop()]]
            for base in map(self.network.base, refs([node.args, list(node.kwargs.values())])):
                one = self.position.get(base)
                if one is not None and one not in self.kept and one not in found:
                    found.add(one)
                    waiting.append(one)
        return sorted(found)

    def _prologue(self, value: str, members: list[str], loaded: Collection[str] = ()) -> Prologue:
        if self.network.spec(value).dtype != "float32":
            raise Refused("a value in another type than float32")
        rank = len(self.network.spec(value).shape)
        return build_prologue(self.network, value, members, (1, rank - 1) if rank > 1 else (1,), RESERVED, loaded, apart=True)

    # -- addresses ------------------------------------------------------------------------------------------------------------

    def _placed(self, loop: Loop, kernels: list[Kernel], number: int, zeroth: Kernel | None = None) -> None:
        """Points the accesses of the first of `kernels` (the same loop in consecutive passes, from pass `number` on) to slots and outside tensors,
        and turns numbers that differ between passes into reads of a table. `zeroth` is the loop of the first pass."""
        kernel, other = kernels[0], kernels[1] if len(kernels) > 1 else None
        for one in kernels:
            self._filled(one)
        if zeroth is not None:
            self._filled(zeroth, self.passes.initial)
        others = [*kernels[2:], *([zeroth] if zeroth else [])]  # needed for their numbers alone
        if len({_form(one) for one in kernels[:2]}) > 1 or len({_computed(one) for one in (kernel, *others)}) > 1:
            raise Refused("a pass is computed in another way than the one before")
        arguments: dict[str, Argument] = {}
        self._tabulated(kernel, [*([zeroth] if zeroth else []), *kernels], arguments)
        accesses = [op.access for op in kernel.ops.values() if op.access.argument and op.access.argument not in arguments]  # tables apart
        later = [op.access for op in other.ops.values() if op.access.argument] if other is not None else accesses
        if any(op.kind == "coord" and op.attr == 0 for op in kernel.ops.values()):
            raise Refused("a value depends on the number of its row")
        gathered = {id(op.access) for op in kernel.ops.values() if op.kind == "gather"}
        if len(later) != len(accesses):
            raise Refused("a pass is computed in another way than the one before")
        following = iter(later)
        for access in accesses:
            argument, after = kernel.arguments[access.argument], next(following)
            slot = self._slot_of(argument.value)
            if slot is not None:
                self._within(access, slot, id(access) in gathered, kernel, loop)
                arguments[slot.name] = Argument(slot.name, argument.value, "float32", self.body.batch * slot.pitch)
                continue
            if other is not None and other.arguments[after.argument].value != argument.value:
                raise Refused("a pass reads another tensor than the one before")
            step = after.offset - access.offset if other is not None else 0
            access.offset -= step * number
            key = (argument.value, access.strides[0], step)
            pointer = self.body.pointers.setdefault(key, Pointer(f"from_{len(self.body.pointers)}", *key))
            name = f"{pointer.name}_now" if step else pointer.name
            access.argument, access.strides = name, (0, *access.strides[1:]) if not pointer.row else access.strides
            arguments[name] = Argument(name, argument.value, argument.dtype, argument.elements)
        kernel.arguments = arguments

    def _within(self, access: Access, slot: Slot, gathers: bool, kernel: Kernel, loop: Loop) -> None:
        """Adapts an access to the slot's rows. Raises `Refused` if it may leave its row."""
        reach = access.offset + sum((size - 1) * stride for size, stride in zip(kernel.sizes[1:], access.strides[1:], strict=True) if stride > 0)
        if access.strides[0] != slot.width and kernel.sizes[0] > 1 or any(stride < 0 for stride in access.strides) or access.offset < 0:
            raise Refused("a row reads another one")
        if not gathers and reach >= slot.width or gathers and not 0 <= access.index_stride <= slot.width:
            raise Refused("a row reads another one")
        same = not gathers and not access.offset and slot.width == loop.into.width
        same = same and access.strides[1:] == tuple(_steps(tuple(kernel.sizes[1:])))
        loop.reads[slot.name] = loop.reads.get(slot.name, True) and same
        access.argument, access.strides = slot.name, (slot.pitch, *access.strides[1:])

    def _filled(self, kernel: Kernel, kept: Collection[str] = ()) -> None:
        """Replaces reads of tensors that are filled with one number by the number, except the tensors in `kept`."""
        for op in kernel.ops.values():
            node = self.network.nodes.get(kernel.arguments[op.access.argument].value) if op.access.argument else None
            if node is not None and short(node) in CONSTANTS and node.name not in kept:
                if short(node) == "arange" or op.dtype not in (*NUMBERS, "bool"):
                    raise Refused("a pass reads numbers of another kind that forward creates")
                number = filled_with(node)
                number = float(number) if op.dtype == "float32" else bool(number) if op.dtype == "bool" else int(number)
                op.kind, op.args, op.attr, op.access = "const", (), number, Access("", ())
        wanted = {list(kernel.ops)[-1]}
        for op in reversed(list(kernel.ops.values())):
            if op.name in wanted:
                wanted.update(op.args)
        kernel.ops = {name: op for name, op in kernel.ops.items() if name in wanted}

    def _tabulated(self, kernel: Kernel, every: list[Kernel], arguments: dict[str, Argument]) -> None:
        if len(every) < self.body.steps:
            return
        columns = [[op for op in one.ops.values() if op.kind == "const"] for one in every]
        for ops in zip(*columns, strict=True):
            texts = [constant(op.attr, op.dtype) for op in ops]
            if len(set(texts)) == 1:
                continue
            table = Table(ops[0].dtype, tuple(texts))
            if table.dtype not in NUMBERS:
                raise Refused(f"a constant of {table.dtype} differs from pass to pass")
            name = next((known for known, other in self.body.tables.items() if other == table), f"table_{len(self.body.tables)}")
            self.body.tables[name] = table
            own = next(op for op in kernel.ops.values() if op.name == ops[1].name)
            own.kind, own.attr, own.access = "load", None, Access(f"{name}_now", (0,) * len(kernel.sizes))
            arguments[f"{name}_now"] = Argument(f"{name}_now", name, table.dtype, len(texts))


def _form(kernel: Kernel) -> Any:
    """Returns the common structure of two kernels that differ only in names, numbers and addresses."""
    place = {name: at for at, name in enumerate(kernel.ops)}
    return tuple((op.kind, tuple(place[arg] for arg in op.args), op.dtype) for op in kernel.ops.values())


def _computed(kernel: Kernel) -> Any:
    """Returns the kernel's operations apart from loads. Two loads become one in a pass in which they happen to read the same element."""
    return tuple((op.kind, op.dtype) for op in kernel.ops.values() if op.kind != "load")


def _steps(shape: Iterable[int]) -> list[int]:
    """Returns the strides of a dense tensor."""
    found: list[int] = []
    step = 1
    for size in reversed(list(shape)):
        found.insert(0, step)
        step *= size
    return found


__all__ = ["RESERVED", "body_of"]
