"""Runs the steps of one nvcc command as nvcc would, but overlaps the host and device halves.

nvcc preprocesses and parses a unit twice, sequentially: for the host (cudafe++) and for the device (cicc, ptxas). The commands are taken from `nvcc
--dryrun`, so the machine code is identical to nvcc's. The two halves share only the module ID, which makes internal names unique; this module writes
it in advance. If a command has anything beyond the standard steps for a single architecture, it is left to nvcc itself.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import subprocess
import tempfile
import threading
from dataclasses import dataclass


@dataclass(frozen=True)
class Done:
    returncode: int
    output: str  # combined output of all steps, in order


@dataclass(frozen=True)
class Steps:
    """The steps of a command. `variables` applies to all steps. `host` and `device` can overlap; `rest` runs afterwards."""

    variables: dict[str, str]
    host: list[str]
    device: list[str]
    rest: list[str]
    module_id: str  # the file that the two halves share


def run_nvcc(command: list[str], folder: str) -> Done:
    """Runs an nvcc command. `command` begins with the compiler's path. It runs in `folder`, which also holds its temporary files."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        environment = {**os.environ, "TMPDIR": scratch}
        dry = subprocess.run([*command, "--dryrun"], capture_output=True, text=True, env=environment, cwd=folder)
        steps = read_steps(dry.stderr) if dry.returncode == 0 else None
        if steps is None:
            done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder)
            return Done(done.returncode, done.stdout + done.stderr)
        with open(steps.module_id, "w") as file:
            file.write(_module_id(command))
        return _run(steps, environment, folder)


def read_steps(text: str) -> Steps | None:
    """Parses the output of `--dryrun`. Returns null unless the output describes a single unit for a single architecture."""
    variables: dict[str, str] = {}
    commands: list[str] = []
    for line in text.splitlines():
        if not line.startswith("#$ "):
            return None
        assignment = re.fullmatch(r"#\$ (\w+)=(.*)", line)
        if assignment:
            variables[assignment[1]] = assignment[2].strip()
        elif not line.startswith("#$ rm "):  # the whole folder is removed at the end
            commands.append(line[3:])
    if len(commands) < 5 or " -E " not in commands[0] or "-D__CUDA_ARCH__=" in commands[0]:
        return None
    if not commands[1].startswith("cudafe++ ") or "--gen_module_id_file" not in commands[1]:
        return None
    end = next((at for at, command in enumerate(commands) if at > 1 and " -c -x c++ " in command), 0)
    device = commands[2:end]
    if sum(" -E " in command for command in device) != 1 or sum("cicc" in command.split(" ")[0] for command in device) != 1:
        return None
    module_id = re.search(r'--module_id_file_name "([^"]+)"', commands[1])
    if module_id is None or module_id[0] not in " ".join(device):
        return None
    host = [commands[0], commands[1].replace("--gen_module_id_file ", "")]
    return Steps(variables, host, device, commands[end:], module_id[1])


def _module_id(command: list[str]) -> str:
    """Creates an ID in nvcc's format: a hash, followed by the unit's name and its length. The hash covers the command and the source, so no two units
    share an ID."""
    digest = hashlib.sha256("\0".join(command).encode())
    name = "unit"
    for argument in command[1:]:
        if argument.endswith(".cu") and os.path.isfile(argument):
            name = re.sub(r"\W", "_", os.path.basename(argument))
            with open(argument, "rb") as file:
                digest.update(file.read())
    text = digest.hexdigest()
    return f"_{text[:8]}_{len(name)}_{name}_{text[8:16]}"


def _run(steps: Steps, environment: dict[str, str], folder: str) -> Done:
    environment = {**environment, **{name: _unquoted(value) for name, value in steps.variables.items()}}
    halves: list[_Half] = [_Half(steps.host, environment, folder), _Half(steps.device, environment, folder)]
    for half in halves:
        half.start()
    for half in halves:
        half.join()
    failed = next((half for half in halves if half.returncode), None)
    if failed is not None:  # both halves report the same source error
        return Done(failed.returncode, failed.output)
    rest = _Half(steps.rest, environment, folder)
    rest.run()
    return Done(rest.returncode, "".join(half.output for half in (*halves, rest)))


class _Half(threading.Thread):
    """Runs commands one after another until one fails."""

    def __init__(self, commands: list[str], environment: dict[str, str], folder: str):
        super().__init__(daemon=True)
        self.commands = commands
        self.environment = environment
        self.folder = folder
        self.returncode = 0
        self.output = ""

    def run(self) -> None:
        for command in self.commands:
            done = subprocess.run(["/bin/sh", "-c", "exec " + command], capture_output=True, text=True, env=self.environment, cwd=self.folder)
            self.output += done.stdout + done.stderr
            self.returncode = done.returncode
            if done.returncode != 0:
                return


def _unquoted(value: str) -> str:
    """Returns a variable's value. `PATH` and similar variables are unquoted. Option lists are quoted and are used only by expanding them in
    commands."""
    return value if '"' not in value else " ".join(shlex.split(value))
