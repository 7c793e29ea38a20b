"""The reward in common use today, for comparison: one seed, one shape, a clock in the program's own process, and KernelBench's tolerance.

A reply's program earns 0.3 plus its speedup over eager if its output is close to eager's for one input, and 0 otherwise (arXiv 2507.11948). **It runs
programs without a sandbox**, each in a separate process: use it only on a disposable host.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.synchronize
import queue
import threading
import time
import uuid
from typing import Any

from agents.rl.prompts import program_in, prompt_of

CORRECT = 0.3
TOLERANCE = 1e-2
WARM_UP, CALLS = 3, 20
LONGEST = 30.0  # seconds for a program's build, check and calls


def judged(task: str, program: str, device: str, timing: multiprocessing.synchronize.Lock, answer: Any) -> None:
    """Judges a program in this process and puts the result into `answer`."""
    import os
    import types

    import torch

    def loaded(name: str, source: str) -> Any:
        module = types.ModuleType(name)
        exec(compile(source, f"{name}.py", "exec"), module.__dict__)  # what such a reward does
        return module

    def milliseconds(model: Any, inputs: list[Any]) -> float:
        for _ in range(WARM_UP):
            model(*inputs)
        torch.cuda.synchronize()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(CALLS):
            model(*inputs)
        end.record()
        torch.cuda.synchronize()
        return float(begin.elapsed_time(end)) / CALLS

    try:
        os.environ["STITCH_CUDA_ARCH"] = "sm_{}{}".format(*torch.cuda.get_device_capability(device))  # nvcc asks the device otherwise: a context more
        reference = loaded("task", task)
        torch.manual_seed(0)
        inputs = [one.to(device) for one in reference.get_inputs()]
        given = reference.get_init_inputs()
        torch.manual_seed(0)
        model = reference.Model(*given).to(device)
        torch.manual_seed(0)
        new = loaded("program", program).ModelNew(*given).to(device)
        with torch.no_grad():
            wanted, found = model(*inputs), new(*inputs)
            torch.cuda.synchronize()
            if wanted.shape != found.shape or not torch.allclose(wanted, found, atol=TOLERANCE, rtol=TOLERANCE):
                answer.put({"status": "wrong_result", "reward": 0.0})
                return
            with timing:
                speedup = milliseconds(model, inputs) / milliseconds(new, inputs)
        answer.put({"status": "passed", "speedup": speedup, "reward": CORRECT + speedup})
    except Exception as error:  # a program may raise anything
        answer.put({"status": "failed", "why": f"{type(error).__name__}: {error}"[:300], "reward": 0.0})


class NaiveProblems:
    """Problems for the trainer (`agents.rl.training.Problems`), in this process. `tasks`: sources, keyed by name."""

    def __init__(self, tasks: dict[str, str], device: str, workers: int):
        self.tasks, self.device = tasks, device
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["torch"])
        self._timing = self._context.Lock()
        self._room = threading.Semaphore(workers)
        self._episodes: dict[str, str] = {}

    def reset(self, problem: str | None = None, seed: int | None = None) -> dict[str, Any]:
        import random

        names = list(self.tasks)
        name = problem or names[random.Random(seed).randrange(len(names))]
        episode = uuid.uuid4().hex
        self._episodes[episode] = name
        return {"episode_id": episode, "problem": name, "prompt": prompt_of(self.tasks[name])}

    def step(self, episode_id: str, *, program: str | None = None, reply: str | None = None) -> dict[str, Any]:
        name = self._episodes.pop(episode_id)
        source = program if program is not None else program_in(reply or "")
        found = self.judge(self.tasks[name], source)
        seen = {"episode_id": episode_id, "components": {"gate": found["status"], **found}, "feedback": found.get("why", "")}
        return {"observation": seen, "reward": found["reward"], "done": True}

    def judge(self, task: str, program: str) -> dict[str, Any]:
        with self._room:
            answer = self._context.Queue()
            worker = self._context.Process(target=judged, args=(task, program, self.device, self._timing, answer), daemon=True)
            worker.start()
            found: dict[str, Any] = {"status": "timed_out", "reward": 0.0}
            until = time.monotonic() + LONGEST
            while time.monotonic() < until:
                running = worker.is_alive()  # asked first, because an answer may arrive just before the end
                try:
                    found = answer.get(timeout=0.1)
                    break
                except queue.Empty:
                    if not running:
                        found = {"status": "crashed", "reward": 0.0}
                        break
            worker.kill()
            worker.join()
            return found
