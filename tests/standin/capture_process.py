"""Captures tasks' graphs for the stand-in: reads JSON lines and writes JSON lines until standard input ends.

It runs the task's code without a sandbox, which is acceptable in tests because the tasks are our own examples. The product captures graphs in a
verifier.
"""

from __future__ import annotations

import json
import os
import sys

import torch

from verifier.parties.capturing.capture import capture


def serve() -> None:
    out = os.fdopen(os.dup(1), "w")  # a task's output must not appear between the answers
    os.dup2(2, 1)
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            names = {"__name__": "task"}
            exec(compile(asked["source"], "<task>", "exec"), names)
            torch.manual_seed(0)
            model = names["Model"](*names["get_init_inputs"]())
            found = capture(model, names["get_inputs"](), asked["source"], asked["mode"])
            answer = {"capture": found.model_dump(mode="json")}
        except Exception as error:  # untrusted code may raise any exception
            answer = {"error": f"{type(error).__name__}: {error}"[:2000]}
        print(json.dumps(answer), file=out, flush=True)


if __name__ == "__main__":
    serve()
