"""The printed forward: allocations, launches and library calls in an order that respects every dependency."""

from __future__ import annotations

import re
from typing import Any

from agents.compiler import cuda_graph, families, print_cpp, print_cuda
from agents.compiler.builder import CONSTANTS, Refused, identifier
from agents.compiler.groups.fuse import build
from agents.compiler.ir import Argument, Kernel, product, shift_pointers
from agents.compiler.kernels.schedule import schedule
from agents.compiler.kernels.shape import Shape, shape_of
from agents.compiler.layout import SPLITS
from agents.compiler.naming import rename_arguments
from agents.compiler.network import SIZES, Network, plain, refs
from agents.compiler.options import Options
from agents.compiler.packing import Packing
from agents.compiler.plan import CompilerPlan, Group, kernel_bytes, word, work_of
from agents.compiler.print_torch import FRESH, attribute, expression
from agents.compiler.reductions import short
from agents.compiler.task_text import TaskText
from verifier.graph import GraphInput

MODAL = {"_native_batch_norm_legit_functional", "_native_batch_norm_legit_no_training", "native_dropout", "dropout"}


class Forward:
    def __init__(self, plan: CompilerPlan, text: TaskText, options: Options):
        self.plan, self.task, self.options = plan, text, options
        self.network = Network(plan.graph)
        self.cuda = plan.figures.kind == "cuda"
        self.arguments = text.arguments()
        self.refused: dict[str, str] = {}
        self.variables: dict[str, str] = {}  # value of the graph -> expression
        self.taken: set[str] = {*self.arguments, "self", "torch", "kernels", "ctypes", "stream", "scratch", "packed"}
        self.lines: list[str] = []
        self.groups = [part for group in plan.groups for part in self._parts(group)]
        self.kernels: list[tuple[Kernel, Shape, list[str]]] = []
        self.printed: dict[str, tuple[families.Printed, families.Work, list[str]]] = {}  # kernels of families by name, with comment lines
        first = next((e for e in plan.graph.inputs if e.kind == "user" and e.spec is not None), None)
        self.packing = Packing(f"{self.arguments[first.index]}.device" if first else '"cuda"' if self.cuda else '"cpu"')
        self.bodies: dict[str, str] = {}  # printed kernel without its name -> its name
        self.groups_of: dict[str, list[str]] = {}  # kernel -> groups that launch it
        self.scratch: dict[str, int] = {}  # floats of scratch memory that a launcher takes
        self.own_groups: set[str] = set()
        self.applied: list[str] = []
        self.counters: dict[float, list[str]] = {}  # increment -> state that only counts the calls
        self.done: set[str] = set()  # operators that run before the group being printed
        self.in_state: set[str] = set()  # state-dict names that a kernel has written in place
        self._name_inputs()

    # -- the parts of the program -------------------------------------------------------------------------------------------

    def text(self) -> str:
        """`forward` as a method; fills `kernels` on the way."""
        read = {name for node in self.network.nodes.values() for name in refs([node.args, list(node.kwargs.values())])}
        outside = [e for e in self.network.inputs.values() if not e.persistent and (e.name in read or e.target in self.plan.graph.mutations)]
        moved = [f"{attribute(e.target)} = {attribute(e.target)}.to({self.packing.device})" for e in outside]
        self._checks()
        for group in self.groups:
            if group.family:
                self._launch_family(group)
            elif self._is_own(group):
                self._launch(group)
            else:
                self._library(group)
            self.done.update(group.operators)
        self._state()
        self.lines.append(f"return {self._tree(self.plan.graph.output_tree)}")
        graph = self.plan.graph
        if self.cuda and self.options.on("cuda-graph") and not graph.mutated_inputs:
            self.applied.append("cuda-graph")
            tensors = [self.arguments[e.index] for e in graph.inputs if e.kind == "user" and e.spec is not None]
            mutated = [attribute(target) for target in graph.mutations]
            wrapped = cuda_graph.wrap(
                self.task.signature(), self.arguments, tensors, mutated, self.lines, graph.output_tree, graph.outputs, bool(self.packing.code), moved
            )
            return self.packing.methods(recorded=True) + wrapped
        body = "\n".join(f"        {line}" for line in [*moved, *self.lines])
        return self.packing.methods() + f"    @torch.no_grad()\n    def forward{self.task.signature()}:\n{body}\n"

    def source(self) -> str:
        printer = print_cuda if self.cuda else print_cpp
        return printer.print_source(self.kernels, {name: (printed, work.kernels(), lines) for name, (printed, work, lines) in self.printed.items()})

    @property
    def has_kernels(self) -> bool:
        return bool(self.kernels or self.printed)

    def flags(self) -> tuple[str, ...]:
        """Of the compiler, beyond those that every program has."""
        return tuple(dict.fromkeys(flag for printed, _, _ in self.printed.values() for flag in printed.flags))

    def signatures(self) -> dict[str, int]:
        """Pointers that each kernel takes, the stream among them."""
        counts = {kernel.name: len(kernel.arguments) for kernel, _, _ in self.kernels}
        counts |= {name: len(printed.arguments) + len(printed.packed) for name, (printed, _, _) in self.printed.items()}
        return {name: count + self.cuda + bool(self.scratch.get(name)) for name, count in counts.items()}

    def support(self) -> str:
        """Module-level functions that forward calls."""
        lines = [
            "",
            "def dense(name, value, shape, dtype):",
            '    """`value` as contiguous memory, if it has the shape and type that the kernels were made for."""',
            "    if value.shape != shape or value.dtype != dtype:",
            '        raise ValueError(f"{name}: made for {shape} of {dtype}, got {tuple(value.shape)} of {value.dtype}")',
            "    value = value.contiguous()",
            *(
                ["    return value.clone() if value.data_ptr() % 16 else value  # kernels load four floats at once", ""]
                if self.cuda
                else ["    return value", ""]
            ),
        ]
        if self.cuda and self.has_kernels:
            lines += [
                "",
                "def check(status):",
                '    """A launch reports its error as a number; 0 is none."""',
                "    if status != 0:",
                '        raise RuntimeError(f"a kernel could not be launched: CUDA error {status}")',
                "",
            ]
        return "\n".join(lines)

    # -- inputs -------------------------------------------------------------------------------------------------------------

    def _name_inputs(self) -> None:
        for entry in self.network.inputs.values():
            if entry.kind == "user":
                self.variables[entry.name] = self.arguments[entry.index]
            elif entry.kind == "constant":
                self.variables[entry.name] = self._constant_tensor(entry)
            else:
                self.variables[entry.name] = attribute(entry.target)

    def _constant_tensor(self, entry: GraphInput) -> str:
        """On the GPU it is made or moved once."""
        if entry.value is None:
            return self.packing.variable(f"{attribute(entry.target)}.to(device)", self.lines) if self.cuda else attribute(entry.target)
        text = f"torch.tensor({entry.value!r}, dtype=torch.{entry.spec.dtype})"
        return self.packing.variable(f"{text[:-1]}, device=device)", self.lines) if self.cuda else text

    def _checks(self) -> None:
        users = [entry for entry in self.plan.graph.inputs if entry.kind == "user"]
        if self.task.has_variants:
            terms = [f"{self.variables[e.name]}.shape != {tuple(e.spec.shape)}" for e in users if e.spec is not None]
            call = ", ".join(self.arguments)
            self.lines += [f"if {' or '.join(terms)}:", f"    return self.forward_eager({call})  # another of the task's shapes"]
        if any(short(node) in MODAL for node in self.plan.graph.nodes):
            wanted = self.plan.mode == "train"
            self.lines += [f"if self.training is not {wanted}:", f'    raise ValueError("made for {self.plan.mode} mode")']
        for entry in users:
            name = self.variables[entry.name]
            if entry.spec is not None:
                if entry.name in self.plan.graph.mutated_inputs:
                    self.lines.append(f"original_{name} = {name}")
                self.lines.append(f'{name} = dense("{name}", {name}, {tuple(entry.spec.shape)}, torch.{entry.spec.dtype})')
            else:
                self.lines += [f"if {name} != {entry.value!r}:", f'    raise ValueError("made for {name} = {entry.value!r}")']
        if self.cuda:
            device = next((self.variables[e.name] for e in users if e.spec is not None), None)
            where = f"{device}.device" if device else ""
            self.lines.append(f"stream = torch.cuda.current_stream({where}).cuda_stream")

    # -- groups -------------------------------------------------------------------------------------------------------------

    def _parts(self, group: Group) -> list[Group]:
        """A group of a family whose gate is closed is cut: the anchor to the library, what stood around it to kernels of the IR."""
        if not group.family:
            return [group]
        if self.options.on("leave-to-library", group.id):
            return [group.model_copy(update={"family": "", "space": "pytorch"})]
        try:
            work = work_of(self.plan, self.network, group, self.options)
        except Refused as refusal:
            self.refused[group.id] = str(refusal)
            return [group.model_copy(update={"family": "", "space": "pytorch"})]
        if self.options.on(group.strategies[0], group.id):
            return [group]
        self.refused[group.id] = "given back to the library, which was faster here"
        anchor = set(work.match.members)
        early = [name for name in group.operators if name in work.early]
        late = [name for name in group.operators if name not in anchor and name not in work.early]
        return [
            group.model_copy(update={"family": "", "operators": names, "space": space, "strategies": ["fuse-pointwise", "vectorise"],
                                     "kinds": [word(self.network.nodes[name]) for name in names]})
            for names, space in ((early, "own kernel"), (list(work.match.members), "library"), (late, "own kernel")) if names
        ]  # fmt: skip

    def _is_own(self, group: Group) -> bool:
        if group.family:
            return True
        if group.space != "own kernel":
            return False
        gate = next((s for s in ("fuse-row-reduction", "fuse-pointwise") if s in group.strategies), "")
        if self.options.on("leave-to-library", group.id) or not self.options.on(gate, group.id):
            self.refused[group.id] = "given back to PyTorch, which was faster here"
            return False
        return True

    def _launch(self, group: Group) -> None:
        try:
            kernel = build(self.network, group.operators, "kernel", group.title)
        except Refused as refusal:
            self.refused[group.id] = str(refusal)
            self._library(group)
            return
        shape = shape_of(kernel, self.plan.figures, self.options, group.id)
        moved = kernel_bytes(self.network, kernel)
        self._reuse(group, kernel, shape)
        shift_pointers(kernel)
        self.own_groups.add(group.id)
        self.applied += [s for s in (*group.strategies, *self._extra(shape)) if s not in self.applied]
        self._memory(list(kernel.arguments.values()))
        name = self._kernel_name(group, kernel, shape, moved)
        self.groups_of.setdefault(name, []).append(group.id)
        self._call(name, [self._pointer(argument) for argument in kernel.arguments.values()])

    def _launch_family(self, group: Group) -> None:
        work = work_of(self.plan, self.network, group, self.options)
        family = families.by_name(group.family)
        try:
            printed = family.print_cuda(work) if self.cuda else family.print_cpp(work)
        except Refused as refusal:
            self.refused[group.id] = str(refusal)
            self._library(group)
            return
        self.own_groups.add(group.id)
        self.applied += [s for s in group.strategies if s not in self.applied]
        self._memory(printed.arguments)
        name = self._family_name(group, printed, work)
        self.groups_of.setdefault(name, []).append(group.id)
        pointers = [self._pointer(argument) for argument in printed.arguments]
        for packed in printed.packed:
            pointers.append(f"{self.packing.variable(packed.code.format(*map(self._value, packed.values)), self.lines)}.data_ptr()")
        self._call(name, pointers)

    def _memory(self, arguments: list[Argument]) -> None:
        """Variables of what a kernel reads, memory for what it writes."""
        for argument in arguments:
            if argument.value not in self.variables and not argument.written:
                self._materialise(argument.value)
        for argument in arguments:
            if not argument.written or argument.value in self.variables:
                continue
            name = self._fresh(argument.value)
            self.variables[argument.value] = name
            spec = self.network.spec(argument.value)
            extras = "" if spec.dtype == "float32" else f", dtype=torch.{spec.dtype}"
            extras += f", device={self._device()}" if self.cuda else ""
            self.lines.append(f"{name} = torch.empty({tuple(spec.shape)}{extras})")

    def _call(self, name: str, pointers: list[str]) -> None:
        if floats := self.scratch.get(name):
            self.lines.append(f"scratch = torch.empty({floats}, device={self._device()})")
            pointers = [*pointers, "scratch.data_ptr()"]
        call = f"kernels.{name}({', '.join([*pointers, *(['stream'] if self.cuda else [])])})"
        self.lines.append(f"check({call})" if self.cuda else call)

    def _family_name(self, group: Group, printed: families.Printed, work: families.Work) -> str:
        """As `_kernel_name`, for a kernel of a family."""
        if printed.source in self.bodies:
            return self.bodies[printed.source]
        name = self._unused(kernel_base(group))
        self.bodies[printed.source] = name
        self.scratch[name] = -(-printed.scratch // 4)
        comment = [*self._title(group), *printed.comment, self._traffic(group, group.bytes)]
        self.printed[name] = (printed, work, comment)
        return name

    def _pointer(self, argument: Argument) -> str:
        text = f"{self.variables[argument.value]}.data_ptr()"
        return f"{text} + {argument.shift * SIZES[argument.dtype]}" if argument.shift else text

    def _extra(self, shape: Shape) -> list[str]:
        return (["non-temporal-stores"] if shape.stream else []) + (["parallel-split"] if shape.style == "split" else [])

    def _kernel_name(self, group: Group, kernel: Kernel, shape: Shape, moved: int) -> str:
        """Prints the kernel once; a group whose kernel is the same text shares it."""
        base = kernel_base(group)
        rename_arguments(kernel, self.network)
        kernel.name = "NAME"
        printer = print_cuda.CudaKernel if self.cuda else print_cpp.CppKernel
        body = printer(kernel, shape).text([])
        if body in self.bodies:
            return self.bodies[body]
        name = self._unused(base)
        self.bodies[body] = kernel.name = name
        if self.cuda:
            self.scratch[name] = print_cuda.CudaKernel(kernel, shape).scratch_floats()
        self.kernels.append((kernel, shape, self._comment(group, kernel, shape, moved)))
        return name

    def _unused(self, base: str) -> str:
        name, number = base, 2
        while name in self.bodies.values():
            name, number = f"{base}_{number}", number + 1
        return name

    def _comment(self, group: Group, kernel: Kernel, shape: Shape, moved: int) -> list[str]:
        work = f"{kernel.rows} rows of {kernel.length}" if kernel.reduces else f"{product(kernel.sizes)} elements"
        return [*self._title(group), f"{work}; {how(shape, self.cuda)}.", self._traffic(group, moved)]

    def _title(self, group: Group) -> list[str]:
        return [f"{', '.join(dict.fromkeys(group.kinds))}" + (f" (line {group.line} of the task)" if group.line else "")]

    def _traffic(self, group: Group, moved: int) -> str:
        return f"Memory traffic: {moved / 2**20:.2f} MiB; {group.eager_bytes / 2**20:.2f} MiB one operator at a time."

    def _reuse(self, group: Group, kernel: Kernel, shape: Shape) -> None:
        """Write a result over a value that nobody else reads: no new memory, and its lines are in the cache already."""
        plan = schedule(kernel, shape.cache)
        inside = set(group.operators)
        mutated = {value: name for name, value in self.plan.graph.mutations.items()}
        targets = {entry.target: entry for entry in self.plan.graph.inputs if entry.target}
        for store in list(kernel.stores):
            out = kernel.arguments[store.access.argument]
            if out.read:
                continue
            for source in list(kernel.arguments.values()):
                if source is out or source.written or source.dtype != out.dtype or source.elements != out.elements:
                    continue
                reads = [op for op in kernel.ops.values() if op.access is not None and op.access.argument == source.name]
                if any(op.kind != "load" or (op.access.strides, op.access.offset) != (store.access.strides, 0) for op in reads):
                    continue
                if not self.network.readers(source.value) <= inside | self.done:
                    continue
                if out.value in mutated and targets[mutated[out.value]].name == source.value:
                    self.in_state.add(mutated[out.value])
                elif not self._may_overwrite(source.value, group.id):
                    continue
                reading = [at for at, step in enumerate(plan.passes) if any(op in reads for op in step.elements)]
                last_read = max(reading, default=0) if store.level == "full" else 0
                if store.level == "full" and store not in plan.passes[-1].stores and last_read > next(
                    at for at, step in enumerate(plan.passes) if store in step.stores
                ):  # fmt: skip
                    continue
                store.access.argument = source.name
                source.written = True
                self.variables[out.value] = self._value(source.value)
                del kernel.arguments[out.name]
                break

    def _may_overwrite(self, name: str, group: str) -> bool:
        node = self.network.nodes.get(name)
        if node is None or self.network.escapes(name):
            return False
        maker = next((g for g in self.groups if name in g.operators), None)
        if maker is None:
            return False
        own = maker.id in self.own_groups and maker.space == "own kernel"
        return own or (short(node) in FRESH and self.options.on("fuse-matmul-tail", group))

    def _library(self, group: Group) -> None:
        for name in group.operators:
            node = self.network.nodes[name]
            if self._state_addition(name):
                continue
            text = expression(self.network, node, self._value)
            variable = self._fresh(name)
            own = [user for user in self.network.readers(name) if any(user in g.operators and self._is_own(g) for g in self.groups)]
            if own and short(node) not in FRESH and node.outputs and len(node.outputs) == 1:
                text = f"({text}).contiguous()" if " " in text and not text.endswith(")") else f"{text}.contiguous()"
            self.variables[name] = variable
            self.lines.append(f"{variable} = {text}")

    def _state_addition(self, name: str) -> bool:
        """`self.bn.num_batches_tracked += 1` for a counter that nobody else reads."""
        node = self.network.nodes[name]
        target = next((t for t, value in self.plan.graph.mutations.items() if value == name), None)
        if target is None or node.op != "aten.add.Tensor" or self.network.users[name] or not isinstance(node.args[1], (int, float)):
            return False
        source = self.network.inputs.get(node.args[0]["ref"])
        if source is None or source.target != target or self.network.users[source.name] != [name]:
            return False
        self.counters.setdefault(node.args[1], []).append(attribute(target))
        self.in_state.add(target)
        return True

    def _state(self) -> None:
        for step, counters in self.counters.items():
            if len(counters) > 1:  # one launch for all of them
                self.lines.append(f"torch._foreach_add_([{', '.join(counters)}], {step})")
            else:
                self.lines.append(f"{counters[0]} += {step}")
        for target, value in self.plan.graph.mutations.items():
            if target not in self.in_state:
                self.lines.append(f"{attribute(target)}.copy_({self._value(value)})")
        for target, value in self.plan.graph.mutated_inputs.items():
            self.lines.append(f"original_{self.variables[target]}.copy_({self._value(value)})")

    # -- values -------------------------------------------------------------------------------------------------------------

    def _value(self, name: str) -> str:
        """The expression of a value; views and constants are made where they are read."""
        if name in self.variables:
            return self.variables[name]
        node = self.network.nodes[name]
        maker = self.network.nodes.get(node.args[0]["ref"]) if node.op == "getitem" else None
        if not (self.network.is_view(name) or node.op in SPLITS or short(node) in CONSTANTS or maker is not None):
            raise KeyError(f"{name} is read before it is computed")
        text = expression(self.network, node, self._value)
        if len(self.network.users[name]) > 1 or node.op in SPLITS:
            variable = self._fresh(name)
            self.lines.append(f"{variable} = {text}")
            self.variables[name] = variable
            return variable
        return f"({text})" if short(node) in CONSTANTS and " " in text and not text.endswith(")") else text

    def _materialise(self, name: str) -> None:
        variable = self._fresh(name)
        self.lines.append(f"{variable} = {self._value(name)}")
        self.variables[name] = variable

    def _fresh(self, name: str) -> str:
        name = identifier(name)
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name

    def _device(self) -> str:
        first = next((e for e in self.plan.graph.inputs if e.kind == "user" and e.spec is not None), None)
        return f"{self.variables[first.name]}.device" if first else '"cuda"'

    def _tree(self, tree: Any) -> str:
        if isinstance(tree, int):
            leaf = self.plan.graph.outputs[tree]
            return self._value(leaf["ref"]) if isinstance(leaf, dict) and "ref" in leaf else repr(plain(leaf))
        if isinstance(tree, list):
            return f"[{', '.join(self._tree(item) for item in tree)}]"
        if "tuple" in tree and isinstance(tree["tuple"], list):
            items = [self._tree(item) for item in tree["tuple"]]
            return f"({items[0]},)" if len(items) == 1 else ", ".join(items) if tree is self.plan.graph.output_tree else f"({', '.join(items)})"
        return "{" + ", ".join(f'"{key}": {self._tree(item)}' for key, item in tree.items()) + "}"


C_WORDS = {"add", "sub", "mul", "div", "exp", "log", "sqrt", "pow", "max", "min", "abs", "sum", "where", "norm", "round", "floor", "ceil", "sin",
           "cos", "tan", "tanh", "erf", "var", "std", "neg", "sign", "clone", "mean", "line", "trunc", "log1p", "expm1", "remainder"}  # fmt: skip


def kernel_base(group: Group) -> str:
    """The C name of a group's kernel; another kernel of the same name gets a number."""
    base = re.sub(r"_+", "_", "_".join(dict.fromkeys(identifier(kind.lower()) for kind in group.kinds)))
    base = base if len(base) <= 40 else "_".join(base[:40].split("_")[:-1])
    return f"{base}_all" if base in C_WORDS else base


def how(shape: Shape, cuda: bool) -> str:
    """The launch shape or loop structure in words."""
    if cuda:
        return {
            "elements": f"grid-stride loop, blocks of {shape.threads} threads",
            "rows": f"one warp a row, {shape.threads // 32} rows a block" if shape.warp_rows else f"one block of {shape.threads} threads a row",
            "lanes": f"one thread a row, blocks of {shape.threads} threads",
            "split": f"each row shared by many blocks of {shape.threads} threads",
            "scan": f"one block of {shape.threads} threads a row, tile by tile",
        }[shape.style]
    return {
        "elements": "elements over threads and SIMD lanes",
        "rows": "rows over threads, the elements of a row over SIMD lanes",
        "lanes": "rows over threads and SIMD lanes",
        "split": "few long rows, each shared by all threads",
        "scan": f"{shape.lanes} rows advance together in each thread",
    }[shape.style] + (", written past the cache" if shape.stream else "")


__all__ = ["Forward", "refs"]
