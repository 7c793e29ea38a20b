"""Prints forward: allocations, launches and library calls in an order that respects all dependencies."""

from __future__ import annotations

from compiler import families
from compiler.graph.ir import SIZES, Argument, Kernel, product, shift_pointers
from compiler.graph.layout import SPLITS
from compiler.graph.network import Network, refs, size_bytes
from compiler.graph.placing import placing
from compiler.graph.reductions import short
from compiler.kernel.builder import Refused
from compiler.kernel.fuse import build
from compiler.kernel.naming import HELPERS, IN_FORWARD, free, kernel_base, rename_arguments, unused
from compiler.options import Options
from compiler.planning.partition import IN_PLACE
from compiler.planning.plan import CompilerPlan, Group, kernel_bytes, work_of
from compiler.program import cuda_graph, joined, streams, support
from compiler.program.entry import Entry, constant_text, entry_of, entry_of_part, forward_of_parts
from compiler.program.in_place import InPlace
from compiler.program.print_torch import CONVOLVED, FRESH, HELPED, expression, made_here
from compiler.program.reuse import reuse
from compiler.program.shares import Shares
from compiler.program.state import State
from compiler.program.statements import Statements
from compiler.program.task_text import EAGER, TaskText
from compiler.targets.target import KernelShape, Names
from verifier.graph import ASSERTION, GraphInput, Node, Part

DISCRETE = ("bool", "uint8", "int8", "int16", "int32", "int64")
MODAL = {"_native_batch_norm_legit_functional", "_native_batch_norm_legit_no_training", "native_dropout", "dropout"}


class Forward:
    def __init__(self, plan: CompilerPlan, text: TaskText, options: Options):
        if plan.graph is None:
            raise ValueError(f"there is no forward without a graph: {plan.reason}")
        self.plan, self.graph, self.task, self.options = plan, plan.graph, text, options
        self.network = Network(self.graph, images_last=options.on("channels-last"))
        self.target = plan.target
        self.shares = Shares(plan, self.network, options)
        self.refused = self.shares.refused
        self.groups = [part for group in plan.groups for part in self.shares.of(group)]
        own = IN_FORWARD | (streams.names(len(self.groups)) if options.on("overlap-streams") else set())
        parts = [entry_of_part(part, self.graph, own) for part in self.graph.parts]
        self.entries = parts or [entry_of(text, self.graph, own)]
        self.arguments = [name for entry in self.entries for name in entry.arguments]
        given = {name: parameter for entry in self.entries for name, parameter in entry.given.items()}
        self.helpers = {word: free(word, {*text.bound, *self.arguments}) for word in HELPERS}
        self.names = Names(self.helpers, text.bound)
        self.statements = Statements(
            self.graph, self.network, given, {*own, *self.helpers.values(), *text.needed}, self.target.on_gpu, text.sets_default_type
        )
        self.state = State(self.statements)
        self.in_place = InPlace(self.statements, self.state, self._by_library, enabled=not options.on("overlap-streams"))
        self.joins = self._joins()
        self.kernels: list[tuple[Kernel, KernelShape, list[str]]] = []
        self.printed: dict[str, tuple[families.Printed, families.Work, list[str]]] = {}  # family kernels by name, with their comment lines
        self.bodies: dict[str, str] = {}  # text of a printed kernel without its name -> name
        self.groups_of: dict[str, list[str]] = {}  # kernel -> groups that launch it
        self.scratch: dict[str, int] = {}  # floats of scratch memory per launcher
        self.own_groups: set[str] = set()
        self.applied: list[str] = []
        self.done: set[str] = set()  # operators that run before the current group

    def _joins(self) -> joined.Joins:
        """Finds concatenations whose parts kernels can write in place. This is impossible with side streams, because another stream would have to
        wait for the memory."""
        maker = {name: group for group in self.groups for name in group.operators}
        apart = self.options.on("channels-last") or self.options.on("overlap-streams")
        libraries = [] if apart else [name for name, group in maker.items() if group.space != "own kernel"]

        def written(part: str) -> bool:
            return part in maker and maker[part].family in families.INTO_PARTS

        def strided(name: str) -> bool:
            readers = [maker.get(user) for user in self.network.users[name]]
            return not self.network.escapes(name) and all(group and group.space == "own kernel" and not group.family for group in readers)

        return joined.Joins(self.statements, libraries, written, strided)

    # -- the parts of the program -------------------------------------------------------------------------------------------

    def text(self) -> str:
        """Returns `forward` as a method, along with the methods that it calls. As a side effect, fills `kernels`."""
        return self._text_of_parts() if self.graph.parts else self._text_of_whole(self.entries[0])

    def _text_of_whole(self, entry: Entry) -> str:
        moved = self._moved([e.name for e in self.graph.inputs])
        self._checks([e for e in self.graph.inputs if e.kind == "user"], entry)
        begins = []  # number of statements before each group
        for group in self.groups:
            begins.append(len(self.statements.lines))
            self._group(group)
        if self.target.on_gpu and self.options.on("overlap-streams"):
            self._overlap(begins)
        if self.network.last:
            self.applied.append("channels-last")
        self.state.put()
        self.statements.put(f"return {self.statements.tree(self.graph.output_tree)}")
        graph, signature, around = self.graph, entry.signature, entry.around and "\n" + entry.around
        if self.target.on_gpu and self.options.on("cuda-graph") and not graph.mutated_inputs:
            self.applied.append("cuda-graph")
            tensors = [entry.given[e.name] for e in graph.inputs if e.kind == "user" and e.spec is not None]
            mutated = [self.statements.state[target] for target in graph.mutations]
            packing, lines = self.statements.packing, self.statements.lines
            results = (graph.output_tree, graph.outputs)
            wrapped = cuda_graph.wrap(signature, entry.arguments, tensors, mutated, lines, *results, bool(packing.code), moved, entry.method)
            return packing.methods(recorded=True) + wrapped + around
        return self.statements.packing.methods() + self._method(entry, [*moved, *self.statements.lines], self.groups, bool(moved)) + around

    def _method(self, entry: Entry, lines: list[str], groups: list[Group], moved: bool) -> str:
        # Kernels take pointers, which are invisible to autograd. Without the guard, a call whose code is not in the processor's caches starts about
        # 15 us earlier (measured on a CPU).
        with_torch = moved or self.task.has_variants or not all(self._launched(group) for group in groups)
        guard = "    @torch.no_grad()\n" if with_torch else ""
        body = "\n".join(f"        {line}" for line in lines)
        return f"{guard}    def {entry.method}{entry.signature}:\n{body}\n"

    def _text_of_parts(self) -> str:
        """Returns a method for each part that has generated kernels, and a forward that calls these methods."""
        methods, printed = [], {}
        for part, entry in zip(self.graph.parts, self.entries, strict=True):
            nodes = self._computed_by(part)
            groups = [group for group in self.groups if nodes & {*group.operators}]
            if not any(self.shares.is_own(group) for group in groups):
                continue
            users = [e for e in self.graph.inputs if e.name in entry.given]
            lines = self.statements.begin(users)
            moved = self._moved(part.inputs)
            self._checks(users, entry)
            for group in groups:
                self._group(group)
            self.state.put(nodes, set(part.inputs))
            self._return_given(users, nodes)
            lines.append(f"return {self.statements.tree(part.output_tree, top=True)}")
            methods.append(self._method(entry, [*moved, *self.statements.with_packed(lines)], groups, bool(moved)))
            printed[part.name] = entry.method
        return "\n".join(filter(None, [self.statements.packing.methods(), *methods, forward_of_parts(self.graph, printed)]))

    def _returned(self, entry: GraphInput) -> bool:
        """Returns whether a part returns an argument or a view of it."""
        return bool(self.graph.parts) and self.network.escapes(entry.name)

    def _return_given(self, users: list[GraphInput], nodes: set[str]) -> None:
        """Lets those results of a part that are an argument, changed or not, be that tensor or a view of it instead of the values in other memory. A
        later statement may change one of them in place."""
        variables, network = self.statements.variables, self.network
        given = {value: self.statements.state[target] for target, value in self.graph.mutations.items() if value in nodes}
        for entry in users:
            changed = self.graph.mutated_inputs.get(entry.name)
            if entry.spec is not None and changed not in network.inputs and (changed is not None or self._returned(entry)):
                given[changed or entry.name] = f"original_{variables[entry.name]}"
        for name, node in network.nodes.items():
            cut = node.op in SPLITS and network.base(node.args[0]["ref"]) in given
            if name not in given and (cut or network.is_view(name) and network.base(name) in given):
                variables.pop(name, None)  # read again, from the argument
        variables.update(given)

    def _computed_by(self, part: Part) -> set[str]:
        """Returns the network nodes that a part needs for its results and state changes."""
        names = {node.name for node in self.graph.nodes[part.first : part.end]}
        waiting = [name for name in names if name in self.network.nodes]
        waiting += [name for name in self.network.results if name in names]
        found: set[str] = set()
        while waiting:
            name = waiting.pop()
            if name in found or name not in self.network.nodes:
                continue
            found.add(name)
            node = self.network.nodes[name]
            waiting += refs([node.args, list(node.kwargs.values())])
        return found

    def _moved(self, inputs: list[str]) -> list[str]:
        """Returns the statements that move state outside the state dict to the device of forward's inputs."""
        read = {name for node in self.network.nodes.values() for name in refs([node.args, list(node.kwargs.values())])}
        outside = [e for e in self.network.inputs.values() if not e.persistent and (e.name in read or e.target in self.graph.mutations)]
        here = [e for e in outside if e.name in set(inputs)]
        held = [self.statements.state[e.target] for e in here]
        return [f"{where} = {where}.to({self.statements.packing.device})" for where in held]

    def _group(self, group: Group) -> None:
        if group.family:
            self._launch_family(group)
        elif self.shares.is_own(group):
            self._launch(group)
        else:
            self._library(group)
        self.done.update(group.operators)

    def _launched(self, group: Group) -> bool:
        """Returns whether this program's kernels compute the group."""
        return group.id in self.own_groups and self.shares.is_own(group) and group.id not in self.refused

    def _by_library(self, name: str) -> bool:
        return not any(name in group.operators and self.shares.is_own(group) for group in self.groups)

    def _overlap(self, begins: list[int]) -> None:
        """Moves branches to side streams. Tensors computed once from weights come first."""
        lines = self.statements.lines
        sections = []
        for group, begin, end in zip(self.groups, begins, [*begins[1:], len(lines)], strict=True):
            own = [line for line in lines[begin:end] if not line.startswith("packed = ")]
            sections.append(streams.Section(own, streams.estimate_us(group.floor_ms)))
        first = [*lines[: begins[0]], *(line for line in lines[begins[0] :] if line.startswith("packed = "))] if begins else lines
        device = self.statements.packing.device
        together = streams.overlapped(sections, device, [self.statements.state[target] for target in self.graph.mutations])
        if any(line.startswith("with torch.cuda.stream") for line in together):
            self.applied.append("overlap-streams")
        self.statements.lines = [*first, *together]

    def source(self) -> str:
        """Returns the text of all kernels."""
        return self.target.print(
            self.kernels, {name: (printed, [*work.kernels(), *printed.kernels], lines) for name, (printed, work, lines) in self.printed.items()}
        )

    @property
    def has_kernels(self) -> bool:
        return bool(self.kernels or self.printed)

    def flags(self) -> tuple[str, ...]:
        """Returns the compiler flags in addition to those that every program uses."""
        return tuple(dict.fromkeys(flag for printed, _, _ in self.printed.values() for flag in printed.flags))

    def pointers(self) -> dict[str, int]:
        """Returns the number of pointers that the launcher of each kernel takes, including the pointer to scratch memory."""
        counts = {kernel.name: len(kernel.arguments) for kernel, _, _ in self.kernels}
        counts |= {name: len(printed.arguments) + len(printed.packed) for name, (printed, _, _) in self.printed.items()}
        return {name: count + bool(self.scratch.get(name)) for name, count in counts.items()}

    def support(self) -> str:
        """Returns the module-level functions that forward calls."""
        check = self.target.check if self.has_kernels else ""
        return support.functions(
            self.helpers, self.target.on_gpu, check, exact=any(discrete(entry) for entry in self.graph.inputs), wanted=self._of_groups
        )

    @property
    def _of_groups(self) -> list[str]:
        """Returns helper functions for those operators on groups of rows that no kernel of the program computes."""
        left = {self.network.nodes[name].op for group in self.groups for name in group.operators if not self._launched(group)}
        return [word for op, word in HELPED.items() if op in left]

    # -- inputs -------------------------------------------------------------------------------------------------------------

    def _checks(self, users: list[GraphInput], method: Entry) -> None:
        put, variables = self.statements.put, self.statements.variables
        if self.task.has_variants and not method.around:
            terms = [f"{variables[e.name]}.shape != {tuple(e.spec.shape)}" for e in users if e.spec is not None]
            put(f"if {' or '.join(terms)}:", f"    return self.{EAGER}({method.call})  # another of the task's shapes")
        if any(short(node) in MODAL for node in self.graph.nodes):
            wanted = self.plan.mode == "train"
            put(f"if self.training is not {wanted}:", f'    raise ValueError("made for {self.plan.mode} mode")')
        for entry in users:
            name = variables[entry.name]
            if entry.spec is not None:
                if entry.name in self.graph.mutated_inputs or self._returned(entry):
                    put(f"original_{name} = {name}")
                given = f'{self.helpers["exact"]}("{name}", {name}, torch.{entry.spec.dtype})' if discrete(entry) else name
                put(f'{name} = {self.helpers["dense"]}("{name}", {given}, {tuple(entry.spec.shape)}, torch.{entry.spec.dtype})')
            elif not self.graph.parts and (value := constant_text(entry.value)) is not None:
                said = f"made for {name} = {value}"
                words = repr(said) if set(said) & set('"\\') else f'"{said}"'
                put(f"if {name} != {value}:", f"    raise ValueError({words})")
        put(*self.target.begin(next((variables[e.name] for e in users if e.spec is not None), None)))

    # -- groups -------------------------------------------------------------------------------------------------------------

    def _launch(self, group: Group) -> None:
        try:
            kernel = build(self.network, group.operators, "kernel", group.title)
            self.target.check_covered(kernel)
        except Refused as refusal:
            self.refused[group.id] = str(refusal)
            self._library(group)
            return
        self.joins.restride(kernel)
        shape = self.target.shape_of(kernel, self.plan.figures, self.options, group.id)
        moved = kernel_bytes(self.network, kernel) + self._read_again(kernel, shape)
        passes = self.target.passes(kernel, shape)
        if not self.options.on("overlap-streams"):  # another stream may still be reading it
            reuse(kernel, passes, group, self.done, lambda name: self._may_overwrite(name, group.id), self.statements, self.state)
        if not self.target.in_module:
            shift_pointers(kernel)
        self.own_groups.add(group.id)
        self.applied += [s for s in (*group.strategies, *self._extra(shape)) if s not in self.applied]
        self._memory(list(kernel.arguments.values()))
        name = self._kernel_name(group, kernel, shape, moved)
        self.groups_of.setdefault(name, []).append(group.id)
        self._call(name, [self._pointer(argument) for argument in kernel.arguments.values()])

    def _read_again(self, kernel: Kernel, shape: KernelShape) -> int:
        """Returns the bytes that later passes of a kernel read from memory again because the tensors are too large for any cache."""
        sizes = {name: size_bytes(self.network.spec(kernel.arguments[name].value)) for name in kernel.arguments}
        again = self.target.read_again(kernel, shape)
        return sum(times * sizes[name] for name, times in again.items() if sizes[name] > self.plan.figures.cache_bytes)

    def _launch_family(self, group: Group) -> None:
        work = work_of(self.plan, self.network, group, self.options)
        placed = self.joins.taken(group.operators, work)
        try:
            printed = self.target.print_family(work)
        except Refused as refusal:
            self.refused[group.id] = str(refusal)
            self._library(group)
            return
        self.own_groups.add(group.id)
        self.applied += [s for s in group.strategies if s not in self.applied]
        for part in placed:
            self.joins.place(part)
        self._memory(printed.arguments)
        name = self._family_name(group, printed, work)
        self.groups_of.setdefault(name, []).append(group.id)
        pointers = [self._pointer(argument) for argument in printed.arguments]
        for packed in printed.packed:
            variable = self.statements.packed(packed.code.format(*map(self.statements.made_of, packed.values)))
            pointers.append(self.target.pointer(variable))
        self._call(name, pointers)

    def _memory(self, arguments: list[Argument]) -> None:
        """Creates variables for the values that a kernel reads, and memory for the values that it writes."""
        for argument in arguments:
            if argument.value not in self.statements.variables and not argument.written:
                self.statements.materialise(argument.value)
        for argument in arguments:
            if argument.written and argument.value not in self.statements.variables:
                self._allocate(argument.value)

    def _allocate(self, name: str) -> None:
        """Allocates memory for a value that a kernel writes. For sums at computed positions, the memory holds the initial values."""
        node = self.network.nodes[name]
        found = placing(self.network, node)
        if found is None:
            self.statements.allocate(name)
            return
        if self.in_place.allows(name, self.done) and not self.network.overwrites[name].then:
            self.in_place.hold(name)
            return
        begins = found.begins
        own = self.network.base(begins) == begins and self.network.readers(begins) == {name} and self._may_overwrite(begins, "")
        text = self.statements.value(begins)
        if own:
            self.statements.variables[name] = text
            return
        variable = self.statements.variables[name] = self.statements.fresh(name)
        copied = "" if made_here(self.network, node) else ".clone(memory_format=torch.contiguous_format)"
        self.statements.put(f"{variable} = {text}{copied}")

    def _call(self, name: str, pointers: list[str]) -> None:
        if floats := self.scratch.get(name):
            typed = "dtype=torch.float32, " if self.task.sets_default_type else ""
            self.statements.put(f"scratch = torch.empty({floats}, {typed}device={self.statements.device()})")
            pointers = [*pointers, self.target.pointer("scratch")]
        self.statements.put(self.target.call(name, pointers, self.names))

    def _family_name(self, group: Group, printed: families.Printed, work: families.Work) -> str:
        """Does the same as `_kernel_name` for a family kernel."""
        if printed.source in self.bodies:
            return self.bodies[printed.source]
        name = self._unused(kernel_base(group.kinds))
        self.bodies[printed.source] = name
        self.scratch[name] = -(-printed.scratch // 4)
        comment = [*self._title(group), *printed.comment, self._traffic(group, group.bytes)]
        self.printed[name] = (printed, work, comment)
        return name

    def _pointer(self, argument: Argument) -> str:
        return self.target.pointer(self.statements.dense(argument.value), argument.shift * SIZES[argument.dtype])

    def _extra(self, shape: KernelShape) -> list[str]:
        return (["non-temporal-stores"] if shape.stream else []) + (["parallel-split"] if shape.style == "split" else [])

    def _kernel_name(self, group: Group, kernel: Kernel, shape: KernelShape, moved: int) -> str:
        """Prints the kernel and returns its name. Groups whose kernels have the same text share one kernel."""
        base = kernel_base(group.kinds)
        rename_arguments(kernel, self.network, self.target.reserved)
        kernel.name = "NAME"
        body = self.target.body(kernel, shape)
        if body in self.bodies:
            return self.bodies[body]
        name = self._unused(base)
        self.bodies[body] = kernel.name = name
        self.scratch[name] = self.target.scratch_floats(kernel, shape)
        self.kernels.append((kernel, shape, self._comment(group, kernel, shape, moved)))
        return name

    def _unused(self, base: str) -> str:
        return unused(base, {*self.bodies.values(), *(self.task.bound if self.target.in_module else ())})

    def _comment(self, group: Group, kernel: Kernel, shape: KernelShape, moved: int) -> list[str]:
        work = f"{kernel.rows} rows of {kernel.length}" if kernel.reduces else f"{product(kernel.sizes)} elements"
        return [*self._title(group), f"{work}; {shape.describe(self.target.on_gpu)}.", self._traffic(group, moved)]

    def _title(self, group: Group) -> list[str]:
        return [f"{', '.join(dict.fromkeys(group.kinds))}" + (f" (line {group.line} of the task)" if group.line else "")]

    def _traffic(self, group: Group, moved: int) -> str:
        return f"Memory traffic: {moved / 2**20:.2f} MiB; {group.eager_bytes / 2**20:.2f} MiB one operator at a time."

    def _may_overwrite(self, name: str, group: str) -> bool:
        node = self.network.nodes.get(name)
        if node is None or self.network.escapes(name) or name in self.in_place.held:
            return False
        maker = next((g for g in self.groups if name in g.operators), None)
        if maker is None:
            return False
        own = maker.id in self.own_groups and maker.space == "own kernel"
        return own or (short(node) in FRESH and self.options.on("fuse-matmul-tail", group))

    def _library(self, group: Group) -> None:
        for name in group.operators:
            node = self.network.nodes[name]
            if self.state.counts(name):
                continue
            if self.joins.begun(name):
                self.refused[group.id] = self.joins.join(name)
                continue
            if self.in_place.allows(name, self.done):
                self.in_place.put(name, self.statements.read_by(node))
                continue
            if group.reason == IN_PLACE:
                self.refused[group.id] = "the library writes it in a copy, because its old contents may still be read"
            text = expression(self.network, node, self.statements.read_by(node), self.statements.made_on(), self.helpers)
            if node.op == ASSERTION:
                self.statements.put(text)
                continue
            variable = self.statements.fresh(name)
            own = [user for user in self.network.readers(name) if any(user in g.operators and self.shares.is_own(g) for g in self.groups)]
            if (layout := self.statements.wanted_layout(name)) is None and (own or self.network.recut(name)) and self._may_lie_otherwise(node):
                layout = ""
            if layout is not None:
                text = f"({text}).contiguous({layout})" if " " in text and not text.endswith(")") else f"{text}.contiguous({layout})"
            self.statements.variables[name] = variable
            self.statements.put(f"{variable} = {text}")

    def _may_lie_otherwise(self, node: Node) -> bool:
        """Returns whether a library operator returns a single tensor whose axes may be in a different order in memory than in its shape."""
        if not node.outputs or len(node.outputs) != 1:
            return False
        if short(node) in CONVOLVED:  # its result has the layout of its image or of its weights
            return not all(self._lies_side_by_side(argument["ref"]) for argument in node.args[:2])
        return short(node) not in FRESH

    def _lies_side_by_side(self, name: str) -> bool:
        """Returns whether the elements of a value are known to be in the order of its axes, regardless of the library's choice."""
        layout = self.network.layouts[name]
        if layout.base != name:
            return layout.contiguous and self._lies_side_by_side(layout.base)
        entry = self.network.inputs.get(name)
        if entry is not None:
            return entry.kind == "user" or entry.spec is None or entry.spec.stride is None
        if self.network.of_weights(name) or any(name in group.operators and self.shares.is_own(group) for group in self.groups):
            return name not in self.network.last
        return not self._may_lie_otherwise(self.network.nodes[name])


def discrete(entry: GraphInput) -> bool:
    """Returns whether the entry is a boolean or integer tensor passed to forward."""
    return entry.kind == "user" and entry.spec is not None and entry.spec.dtype in DISCRETE
