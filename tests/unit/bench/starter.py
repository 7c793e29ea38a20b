"""Starts commands as `python COMMAND --help` does, each in a separate process that already has PyTorch, because importing it takes seconds.

It is called with a folder and the commands. The output of each command is written to files in that folder, named by the command's position; the exit
statuses are printed as JSON.
"""

import json
import os
import runpy
import sys
import traceback
from pathlib import Path

import numpy  # noqa: F401
import pydantic  # noqa: F401
import torch  # noqa: F401


def main(folder: Path, commands: list[str]) -> None:
    print(json.dumps([status_of(command.split(), folder / str(at)) for at, command in enumerate(commands)]))


def status_of(words: list[str], files: Path) -> int:
    child = os.fork()
    if child == 0:
        for stream, end in ((1, "out"), (2, "err")):
            os.dup2(os.open(f"{files}.{end}", os.O_CREAT | os.O_WRONLY, 0o600), stream)
        os._exit(started([*words, "--help"]))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def started(words: list[str]) -> int:
    """Runs `python WORDS` and returns its exit status."""
    status = 0
    try:
        run(words)
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return status


def run(words: list[str]) -> None:
    if words[0] == "-m":
        sys.argv, sys.path[0] = words[1:], os.getcwd()
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv, sys.path[0] = words, str(Path(words[0]).parent.resolve())
        runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
