"""Tests models like those that users submit: every file in a folder is read, captured, compiled for the CPU and compared with eager PyTorch.

python bench/reports.py FOLDER [--only NAME] [--seconds 240] [--json] [--out FILE]

It uses no verifier, sandbox or timing, so use it only on files that may run here. Each file runs in a separate process. It prints one line per file:
`compiled` (with generated kernels, correct in three calls with changing inputs and state), `as it is` (correct, without generated kernels, with the
cause), `refused` (with the location and cause), `wrong`, or `failed` (an error in the product itself). It writes bench/results/reports-cpu.json.
"""

# sandboxed: imports tasks; run it where they may run

from __future__ import annotations

import argparse
import copy
import json
import os
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch  # noqa: E402
import torch.export._trace  # noqa: E402

from agents.arguments import Unusable  # noqa: E402
from agents.given import read_source  # noqa: E402
from compiler import DeviceFigures, Options, make_plan, print_program  # noqa: E402
from verifier.judge.party_failure import without_gpu  # noqa: E402
from verifier.layout import LayoutError, Spec, decode, encode  # noqa: E402
from verifier.parties.capturing.capture import capture  # noqa: E402
from verifier.parties.describing import describe  # noqa: E402
from verifier.parties.loading import load_source, unusable  # noqa: E402
from verifier.parties.naming import resolver  # noqa: E402
from verifier.parties.plain_state import PlainState
from verifier.parties.seeding import seed_everything  # noqa: E402
from verifier.source import SourceError  # noqa: E402
from verifier.task import Task  # noqa: E402

RESULTS = Path(__file__).parent / "results" / "reports-cpu.json"
CALLS = 3
ALLOWED = 1e-3  # tolerated error relative to a result's size; rounding errors are far smaller, and a wrong operator causes far larger ones


def passed_on(value: Any, own: Any) -> Any:
    """Returns the arguments as another process would receive them. Raises `LayoutError`."""
    tensors: list[torch.Tensor] = []
    tree = encode(value, tensors, whole=True)
    for tensor in tensors:
        Spec.of(tensor)
    return decode(tree, tensors, resolve=resolver(own))


def one(path: Path, home: str) -> dict[str, Any]:
    """Tests one file. Returns `outcome` and `said`, with the seconds from model to program."""
    try:
        source = read_source(path)
        Task.read(source)
    except (Unusable, SourceError) as error:
        hints = "; ".join(dict.fromkeys(problem.hint for problem in error.problems if problem.hint)) if isinstance(error, SourceError) else ""
        return {"outcome": "refused", "said": f"{error}{f' ({hints})' if hints else ''}"}
    try:
        task = load_source("task", source, home)
        init = task.get_init_inputs()
        if not isinstance(init, (list, tuple)):
            raise LayoutError(f"get_init_inputs returns {type(init).__name__!r}; it must return a list")
        arguments = passed_on(list(init), task)
        seed_everything(1)
        model = task.Model(*init)
        if why := unusable(model):
            raise LayoutError(why)
        passed_on([value for value in model.state_dict().values() if isinstance(value, torch.Tensor) and not value.is_complex()], task)
        if not isinstance(given := task.get_inputs(), (list, tuple)):
            raise LayoutError(f"get_inputs returns {type(given).__name__!r}; it must return a list")
        inputs = passed_on(list(given), task)
        first = task.Model(*passed_on(list(init), task))
        with torch.no_grad(), PlainState(first):  # a call may change the model and its source module
            first(*passed_on(copy.deepcopy(inputs), task))
    except Exception as error:  # raised by the task itself
        told = describe(error)
        return {"outcome": "refused", "said": place(told) + without_gpu(told["message"])[:200]}
    begun = time.perf_counter()
    captured = capture(model, list(inputs), source, "train")
    plan = make_plan(captured, source, DeviceFigures.cpu(2))
    text = print_program(plan, source, Options())
    seconds = round(time.perf_counter() - begun, 1)
    Path(home, "printed.py").write_text(text)
    program = load_source("program", text, home)
    seed_everything(1)
    made = program.ModelNew(*passed_on(list(init), program))
    seed_everything(1)
    eager = task.Model(*arguments)
    made.load_state_dict(eager.state_dict())
    for side in (eager, made):  # as the verifier does, whatever the constructor sets
        side.train()
    try:
        wrong = difference(eager, made, task, program)
    except LayoutError as error:  # a result of the task
        return {"outcome": "refused", "said": str(error)}
    if wrong:
        return {"outcome": "wrong", "said": wrong, "seconds": seconds}
    left = "; ".join(plan.left)
    said = f"{len(plan.own)} of {len(plan.groups)} groups in own kernels" + (f"; left in Python: {left}" if left else "")
    return {"outcome": "compiled" if plan.own else "as it is", "said": said if plan.own else plan.why_none, "seconds": seconds}


def place(told: dict[str, Any]) -> str:
    return f"line {told['line']}: " if told["line"] else ""


def difference(eager: Any, made: Any, task: Any, program: Any) -> str:
    """Describes how the program differs: in its results, in inputs that it changes, or in its state. Returns "" if it does not differ."""
    for call in range(CALLS):
        seed_everything(10 + call)
        given = list(task.get_inputs())
        ours, theirs = passed_on(copy.deepcopy(given), program), copy.deepcopy(given)
        with torch.no_grad():
            seed_everything(5)
            try:
                expected = eager(*theirs)
            except Exception as error:  # the model does not run in PyTorch either
                told = describe(error)
                raise LayoutError(place(told) + without_gpu(told["message"])[:200]) from None
            seed_everything(5)
            got = made(*ours)
        trees, values = [], []
        for result, arguments, model in ((expected, theirs, eager), (got, ours, made)):
            tensors: list[torch.Tensor] = []
            trees.append(encode(result, tensors))
            encode(arguments, tensors, whole=True)
            values.append([*tensors, *model.state_dict().values()])
        if trees[0] != trees[1]:
            return f"call {call + 1} returns {trees[1]} instead of {trees[0]}"
        for at, (right, other) in enumerate(zip(*values, strict=True)):
            if off := apart(right, other):
                return f"call {call + 1}, tensor {at}: {off}"
    return ""


def apart(right: torch.Tensor, other: torch.Tensor) -> str:
    if right.shape != other.shape or right.dtype != other.dtype:
        return f"{other.dtype}{list(other.shape)} instead of {right.dtype}{list(right.shape)}"
    if right.is_complex():
        right, other = torch.view_as_real(right), torch.view_as_real(other)
    right, other = right.double(), other.double()
    scale = right.abs() + right.square().mean().sqrt() + 1e-30
    error = float(((right - other).abs() / scale).nan_to_num(0, 0, 0).max()) if right.numel() else 0.0
    return f"off by {error:.1e} of its size" if error > ALLOWED else ""


def child(path: Path, home: str, seconds: int, pipe: int) -> None:
    signal.alarm(seconds)
    os.environ["STITCH_BUILD_DIR"] = str(Path(home, "build"))
    Path(home, "build").mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    try:
        found = one(path, home)
    except Exception as error:  # an error in the product itself is what this bench looks for
        last = traceback.extract_tb(error.__traceback__)[-1]
        said = f"{type(error).__name__}: {str(error)[:300]} ({Path(last.filename).name}:{last.lineno})"
        found = {"outcome": "failed", "said": said}
    os.write(pipe, json.dumps(found).encode()[:60000])
    os._exit(0)


def forked(path: Path, home: str, seconds: int) -> dict[str, Any]:
    """Runs `one` in a forked process, with everything already imported."""
    reader, writer = os.pipe()
    sys.stdout.flush()
    process = os.fork()
    if process == 0:
        os.close(reader)
        child(path, home, seconds, writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        data = stream.read()
    _, status = os.waitpid(process, 0)
    if data:
        return json.loads(data)
    return {"outcome": "failed", "said": f"not done within {seconds} s" if os.WTERMSIG(status) == signal.SIGALRM else f"it ended with {status}"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="part of a file's name")
    parser.add_argument("--seconds", type=int, default=240, help="that one file may take (default: 240)")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the results are written (default: bench/results/reports-cpu.json)")
    arguments = parser.parse_args()
    paths = [p for p in sorted(arguments.folder.glob("*.py")) if not arguments.only or any(word in p.stem for word in arguments.only)]
    results = {}
    with tempfile.TemporaryDirectory(prefix="reports-") as scratch:
        for path in paths:
            home = Path(scratch, path.stem)
            home.mkdir()
            found = results[path.stem] = forked(path, str(home), arguments.seconds)
            if not arguments.json:
                print(f"{path.stem:28} {found['outcome']:9} {found['said']}"[:400], flush=True)
    rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(found)}" for name, found in results.items())
    if arguments.json:
        print(f"{{\n{rows}\n}}")
    else:
        print(dict(Counter(found["outcome"] for found in results.values())))
    if not arguments.only:
        arguments.out.write_text(f"{{\n{rows}\n}}\n")
    return int(any(found["outcome"] in ("wrong", "failed") for found in results.values()))


if __name__ == "__main__":
    sys.exit(main())
