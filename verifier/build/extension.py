"""Builds `torch.utils.cpp_extension` extensions (`load_inline`, `load`) faster. Torch still decides what to compile and how; only ninja is replaced.

torch writes the units and a `build.ninja` with its own flags. All units are compiled concurrently. CUDA units use light headers (`light.py`) and
overlapping steps (`steps.py`); the C++ unit with the bindings uses slim headers that are precompiled once per host. If a unit does not compile this
way, it is compiled in the ordinary way and `notes` records the fact. The flags for device code are never changed.
"""

# sandboxed: compiles what programs ask for

from __future__ import annotations

import concurrent.futures
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verifier.build.light import BINDING_HEADER, NotLight, binding_headers, light_headers, precompiled_key
from verifier.build.steps import Done, run_nvcc

MAX_NOTE = 300


@dataclass(frozen=True)
class Unit:
    rule: str  # "compile" or "cuda_compile"
    source: str
    target: str


@dataclass(frozen=True)
class NinjaFile:
    """The parsed ninja file that torch wrote: variables, units and the library."""

    folder: str
    variables: dict[str, str]
    units: list[Unit]
    library: str

    def words(self, name: str) -> list[str]:
        return shlex.split(self.variables.get(name, ""))

    def command(self, unit: Unit) -> list[str]:
        compiler, flags = ("nvcc", "cuda_") if unit.rule == "cuda_compile" else ("cxx", "")
        return [*self.words(compiler), *self.words(f"{flags}cflags"), "-c", unit.source, "-o", unit.target, *self.words(f"{flags}post_cflags")]


class NotOurs(Exception):
    """Raised when the ninja file contains something that only ninja should run."""


def read_ninja(folder: str) -> NinjaFile:
    """Parses the ninja file in a folder. Raises `NotOurs`."""
    try:
        text = Path(folder, "build.ninja").read_text()
    except OSError as error:
        raise NotOurs(str(error)) from None
    variables: dict[str, str] = {}
    units: list[Unit] = []
    library, objects = "", ""
    for line in text.splitlines():
        if match := re.fullmatch(r"(\w+) = ?(.*)", line):
            variables[match[1]] = match[2]
        elif match := re.fullmatch(r"build (\S+): (\w+) (.*)", line):
            target, rule, sources = match.groups()
            if "$" in line:
                raise NotOurs("a name with special characters")
            if rule == "link":
                library, objects = target, sources
            elif rule in ("compile", "cuda_compile") and len(sources.split()) == 1:
                units.append(Unit(rule, sources, target))
            else:
                raise NotOurs(f"a rule {rule}")
    if not library or objects.split() != [unit.target for unit in units] or any("$" in value for value in variables.values()):
        raise NotOurs("a build other than compiling and linking")
    return NinjaFile(folder, variables, units, library)


@dataclass
class Accelerator:
    """Replaces `cpp_extension._run_ninja_build`. `headers` is the read-only folder of precompiled headers, or ""."""

    headers: str
    ordinary: Callable[..., Any] | None = None
    notes: list[str] = field(default_factory=list)
    wanted: list[list[str]] = field(default_factory=list)  # C++ flags that had no precompiled header

    def install(self, extension: Any) -> None:
        """Installs the replacement. `extension` is the `torch.utils.cpp_extension` module."""
        self.ordinary, extension._run_ninja_build = extension._run_ninja_build, self.build
        # Ninja itself is needed only for unusual builds. If it was installed as a Python package, its executable is next to the interpreter.
        extension.verify_ninja_availability = lambda: None
        os.environ["PATH"] = os.pathsep.join([os.environ.get("PATH", os.defpath), os.path.dirname(sys.executable)])

    def build(self, build_directory: str, verbose: bool, error_prefix: str) -> None:
        """Runs the build. Raises `RuntimeError` with the compilers' output, as torch does."""
        try:
            ninja = read_ninja(build_directory)
        except NotOurs as error:
            self._note(f"ninja: {error}")
            assert self.ordinary is not None
            self.ordinary(build_directory, verbose, error_prefix)
            return
        with concurrent.futures.ThreadPoolExecutor(max(len(ninja.units), 1)) as pool:
            results = list(pool.map(lambda unit: self._unit(ninja, unit), ninja.units))
        failed = [done for done in results if done.returncode != 0]
        if failed:
            raise RuntimeError(f"{error_prefix}:\n" + "\n".join(done.output for done in failed))  # each line of output begins with its file's name
        link = [*ninja.words("cxx"), *(unit.target for unit in ninja.units), *ninja.words("ldflags"), "-o", ninja.library]
        done = subprocess.run(link, cwd=ninja.folder, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{error_prefix}:\n{done.stdout}{done.stderr}")

    def _unit(self, ninja: NinjaFile, unit: Unit) -> Done:
        name = os.path.basename(unit.source)
        try:
            light = self._cuda(ninja, unit) if unit.rule == "cuda_compile" else self._binding(ninja, unit)
        except NotLight as reason:
            self._note(f"{name}: ordinary headers: {reason}")
        else:
            if light.returncode == 0 or is_final(light.output, _include(ninja)):
                return light
            self._note(f"{name}: ordinary headers: it does not compile with light ones: {first_error(light.output)}")
        command = ninja.command(unit)
        if unit.rule == "cuda_compile":
            return run_nvcc(command, ninja.folder)
        done = subprocess.run(command, cwd=ninja.folder, capture_output=True, text=True)
        return Done(done.returncode, done.stdout + done.stderr)

    def _cuda(self, ninja: NinjaFile, unit: Unit) -> Done:
        source = Path(unit.source).read_text()
        folder = _written(light_headers(source, _include(ninja)), ninja, unit)
        command = ninja.command(unit)
        done = run_nvcc([command[0], "-I", folder, *command[1:]], ninja.folder)
        if done.returncode == 0:
            self._note(f"{os.path.basename(unit.source)}: light headers")
        return done

    def _binding(self, ninja: NinjaFile, unit: Unit) -> Done:
        source = Path(unit.source).read_text()
        folder = _written(binding_headers(source, _include(ninja)), ninja, unit)
        command = ninja.command(unit)
        header = os.path.join(self.headers, precompiled_key(ninja.words("cflags")), BINDING_HEADER)
        precompiled = bool(self.headers) and os.path.exists(header + ".gch")
        if not precompiled:
            self.wanted.append(ninja.words("cflags"))
            header = os.path.join(folder, BINDING_HEADER)
        done = subprocess.run([command[0], "-include", header, "-I", folder, *command[1:]], cwd=ninja.folder, capture_output=True, text=True)
        if done.returncode == 0:
            self._note(f"{os.path.basename(unit.source)}: slim headers{', precompiled' if precompiled else ''}")
        return Done(done.returncode, done.stdout + done.stderr)

    def _note(self, text: str) -> None:
        if len(self.notes) < 32:
            self.notes.append(text[:MAX_NOTE])


def _written(files: dict[str, str], ninja: NinjaFile, unit: Unit) -> str:
    folder = os.path.join(ninja.folder, f"headers-{os.path.basename(unit.target)}")
    for name, text in files.items():
        path = Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def _include(ninja: NinjaFile) -> str:
    """Extracts torch's include folder from the flags."""
    words = ninja.words("cflags")
    for flag, value in zip(words, words[1:], strict=False):
        if flag == "-isystem" and os.path.exists(os.path.join(value, "ATen", "core", "TensorBody.h")):
            return value
    raise NotLight("torch's headers are not where they should be")


_ERROR = re.compile(r"^(?P<file>[^\s:(]+)[:(]\d+(?:[:,]\d+)?\)?:\s*(?:fatal |catastrophic )?error\s*(?:#[\w-]+)?:?\s*(?P<text>.*)$", re.MULTILINE)
_SYNTAX = re.compile(r"^expected (a|an|')|^unrecognized token|^missing (closing|terminating)|^invalid preprocessing")
_UNDEFINED = re.compile(r"^identifier \"(\w+)\" is undefined|^'(\w+)' was not declared in this scope")


def first_error(output: str) -> str:
    match = _ERROR.search(output)
    return match["text"] if match else (output.strip().splitlines() or ["no message"])[0]


def is_final(output: str, include: str) -> bool:
    """Returns whether the ordinary headers would lead to the same errors, that is, whether the errors are syntax errors or names that no header
    declares. This avoids a second compilation for a mistyped name, which would take most of a minute."""
    if "ptxas" in output and "error" in output:
        return True
    errors = [match["text"] for match in _ERROR.finditer(output)]
    unknown: set[str] = set()
    for text in errors:
        undefined = _UNDEFINED.match(text)
        if undefined:
            unknown.add(undefined[1] or undefined[2])
        elif not _SYNTAX.match(text):
            return False
    return bool(errors) and not any(known_to_headers(name, include) for name in unknown)


def known_to_headers(name: str, include: str) -> bool:
    """Returns whether a name occurs in the headers of torch, CUDA, or the system."""
    folders = [include, os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "include"), "/usr/include"]
    folders += os.environ.get("CPLUS_INCLUDE_PATH", "").split(os.pathsep)  # CUTLASS
    command = ["grep", "-rqwF", "--include=*.h", "--include=*.hpp", "--include=*.cuh", name, *filter(os.path.isdir, folders)]
    try:
        return subprocess.run(command, capture_output=True, timeout=10).returncode != 1
    except (OSError, subprocess.SubprocessError):
        return True
