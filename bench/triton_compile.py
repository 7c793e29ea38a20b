"""Compiles the compiler's Triton programs for named tasks for an H200 without needing one, and reports Triton's messages and each kernel's registers
and spills.

python bench/triton_compile.py CHECKOUT [--tasks bench/triton_tasks.txt] [--only NAME] [--every-number] [--keep FOLDER]

Models are captured with fake tensors and run on torch's meta device; every launch is intercepted and compiled (Triton includes its own ptxas), so
this needs no GPU and no memory for tensors. `--every-number` also compiles a program for each value of each of the compiler's numbers, one at a time.
"""

# sandboxed: imports tasks; run it where KernelBench itself may run

from __future__ import annotations

import argparse
import gc
import linecache
import os
import re
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), *map(str, (ROOT / ".venv").glob("triton-*.*.?"))]  # scripts/triton installs it there

import triton  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402

from compiler import DeviceFigures, Options, make_plan, print_program  # noqa: E402
from compiler.planning.knobs import numbers, with_numbers  # noqa: E402
from verifier.parties.capturing.capture import capture  # noqa: E402

TASKS = Path(__file__).with_name("triton_tasks.txt")
TARGET = GPUTarget("cuda", 90, 32)
TYPES = {torch.float32: "*fp32", torch.bfloat16: "*bf16", torch.float16: "*fp16", torch.int64: "*i64", torch.int32: "*i32", torch.bool: "*i1",
         torch.uint8: "*u8", torch.int8: "*i8", torch.int16: "*i16", torch.float64: "*fp64"}  # fmt: skip
OPTIONS = ("num_warps", "num_stages", "num_ctas")


def names(tasks: Path) -> list[str]:
    return [line for line in tasks.read_text().split("\n") if line and not line.startswith("#")]


def planned(path: Path) -> tuple[str, Any]:
    source, module = path.read_text(), {"__name__": "task"}
    code = compile(source, str(path), "exec")
    with FakeTensorMode(allow_non_fake_inputs=True):
        exec(code, module)
        found = capture(module["Model"](*module["get_init_inputs"]()), module["get_inputs"](), source, "train")
    if found.graph is None:
        raise RuntimeError(found.reason)
    return source, make_plan(found, source, DeviceFigures.h200(), language="triton")


def launches(source: str, program: str, name: str) -> list[tuple[Any, tuple, dict]]:
    """Intercepts every launch of one forward on the meta device."""
    caught: list[tuple[Any, tuple, dict]] = []
    before = triton.JITFunction.run
    triton.JITFunction.run = lambda self, *args, grid, warmup, **kwargs: caught.append((self, args, kwargs))
    try:
        task, module = {"__name__": "task"}, {"__name__": "program"}
        exec(compile(source, f"<task {name}>", "exec"), task)
        linecache.cache[f"<{name}>"] = (len(program), None, program.splitlines(keepends=True), f"<{name}>")
        exec(compile(program, f"<{name}>", "exec"), module)
        with torch.device("meta"), torch.no_grad():
            module["ModelNew"](*task["get_init_inputs"]())(*task["get_inputs"]())
    finally:
        triton.JITFunction.run = before
    return caught


def built(kernel: Any, args: tuple, kwargs: dict) -> tuple[str, int, int]:
    """Returns cuobjdump's summary of the machine code: (resources, registers, bytes of stack)."""
    parameters = kernel.arg_names
    values = {**dict(zip(parameters, args, strict=False)), **{k: v for k, v in kwargs.items() if k in parameters}}
    signature = {name: TYPES[v.dtype] if isinstance(v, torch.Tensor) else "constexpr" for name, v in values.items()}
    numbers_of = {(at,): values[name] for at, name in enumerate(parameters) if signature[name] == "constexpr"}
    aligned = {(at,): [["tt.divisibility", 16]] for at, name in enumerate(parameters) if signature[name] != "constexpr"}
    source = triton.compiler.ASTSource(fn=kernel, signature=signature, constexprs=numbers_of, attrs=aligned)
    made = triton.compile(source, target=TARGET, options={name: kwargs[name] for name in OPTIONS if name in kwargs})
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(made.asm["cubin"])
        file.flush()
        tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
        said = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+)", said)
    cores = "wgmma" if "wgmma" in made.asm["ptx"] else "mma" if "mma.sync" in made.asm["ptx"] else ""
    return f"{made.metadata.shared} B shared{', ' + cores if cores else ''}", int(found[1]), int(found[2])


def check(source: str, program: str, name: str, say: Callable[[str], None]) -> list[str]:
    """Returns the problems of one program."""
    problems = []
    caught = launches(source, program, name)
    if not caught:
        return ["it launches nothing"]
    for kernel, args, kwargs in {launch[0].__name__: launch for launch in caught}.values():
        begun = time.perf_counter()
        try:
            uses, registers, stack = built(kernel, args, kwargs)
        except Exception as error:  # the error is itself the finding
            problems.append(f"{kernel.__name__}: {type(error).__name__}: {str(error)[-400:]}")
            continue
        say(f"    {kernel.__name__}: {registers} registers, {stack} B stack, {uses} ({time.perf_counter() - begun:.1f} s)")
        if stack:
            problems.append(f"{kernel.__name__} keeps {stack} B on the stack")
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--tasks", type=Path, default=TASKS)
    parser.add_argument("--only", default="")
    parser.add_argument("--every-number", action="store_true")
    parser.add_argument("--keep", type=Path)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    gc.disable()  # torch 2.11 crashes if the collector encounters an export's fake tensors
    bad = 0
    for name in names(arguments.tasks):
        if arguments.only not in name:
            continue
        source, plan = planned(arguments.checkout / "KernelBench" / "level1" / f"{name}.py")
        rest = [f"{group.title} to {group.space}: {group.reason}" for group in plan.groups if group.space != "own kernel"]
        print(f"{name}: {len(plan.own)} own{'; ' + '; '.join(rest) if rest else ''}", flush=True)
        variants = {"": Options()}
        if arguments.every_number:
            known = numbers(plan, source, Options())
            variants |= {f"{n.name}={v}": with_numbers(Options(), known, {n.name: v}) for n in known for v in n.values if v != n.value}
        for title, options in variants.items():
            program = print_program(plan, source, options)
            if arguments.keep and not title:
                arguments.keep.mkdir(parents=True, exist_ok=True)
                (arguments.keep / f"{name}.py").write_text(program)
            problems = check(source, program, f"{name} {title}", print if not title else lambda text: None)
            bad += bool(problems)
            for problem in problems:
                print(f"  !! {title} {problem}", flush=True)
    print(f"{bad} programs with problems", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    os._exit(main())  # torch destroys the fake tensors of many exports in an order that makes glibc abort
