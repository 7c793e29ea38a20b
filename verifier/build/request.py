"""A program's build request as data: its sources, its flags, the files that they include, and the environment variables that compilers read.

A request has the same digest in every process and in every form: arguments can be positional or named, files can be in a folder with another name,
and output can be verbose or not. Therefore, a runner can find the library that a builder made for the request, or pass the request to a builder
that does not have the program.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

Kind = Literal["load_inline", "load", "stitch_build"]
KINDS: tuple[Kind, ...] = ("load_inline", "load", "stitch_build")
HOME = "/@home@"  # placeholder for a party's own folder, whose name differs between parties on hosts without namespaces
MAX_BYTES = 8 << 20  # total size of all texts in a request
MAX_FILES = 256
# Environment variables that change how compilers behave and that can be passed to another process. The host determines the compilers' locations.
_SEARCHED = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH")
_FOR_CUDA = ("TORCH_CUDA_ARCH_LIST", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")
VARIABLES = (*_FOR_CUDA, "CXXFLAGS", "CFLAGS", "LDFLAGS", *_SEARCHED)
_NOT_WHAT = ("build_directory", "verbose", "keep_intermediates")  # arguments that control folders and verbosity but not the result
_FLAG_LISTS = ("extra_cflags", "extra_cuda_cflags", "extra_sycl_cflags", "extra_ldflags")
_PATH_FLAG = re.compile(r"(?P<flag>-I|-isystem|-iquote|-idirafter|-include|-L|-Wl,-rpath,|)(?P<space> ?)(?P<path>/.*)", re.DOTALL)
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*[<\"]([^>\"\n]+)[>\"]", re.MULTILINE)
_OWN_PATH = re.compile(re.escape(HOME) + r"/([^/\s\"',]+)")


class RequestError(RuntimeError):
    """A request that no builder could satisfy; the message is for the program's author."""


@dataclass(frozen=True)
class BuildRequest:
    """A build request. `files` maps paths relative to the home folder to file contents; arguments write such a path as "/@home@/...". For `load`,
    "sources" lists such paths."""

    kind: Kind
    name: str
    arguments: dict[str, Any]
    files: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """Returns the digest of everything that is compiled. It includes a module's name only if the name affects the result."""
        sources = [self.files.get(path.removeprefix(HOME + "/"), path) for path in self._paths()]
        folders: dict[str, str] = {}

        def renamed(value: str) -> str:
            return _OWN_PATH.sub(lambda match: f"{HOME}/{folders.setdefault(match[1], str(len(folders)))}", value)

        arguments = {key: value for key, value in self.arguments.items() if key != "sources"} | {"": sources}
        text = renamed(json.dumps([self.kind, arguments, self.variables], sort_keys=True))
        beside = {renamed(f"{HOME}/{path}"): text for path, text in sorted(self.files.items()) if f"{HOME}/{path}" not in self._paths()}
        named = self.name if self.named else ""
        return hashlib.sha256(json.dumps([text, beside, named], sort_keys=True).encode()).hexdigest()

    @property
    def key(self) -> str:
        """Returns the key that names the library's folder."""
        return self.digest[:32]

    @property
    def named(self) -> bool:
        """Returns whether the module's name is more than a file name, that is, whether operators are registered under it."""
        return not self.arguments.get("is_python_module", True) or any("TORCH_LIBRARY" in text for text in self.texts())

    def _paths(self) -> list[str]:
        sources = self.arguments.get("sources", [])
        return [sources] if isinstance(sources, str) else list(sources)

    def texts(self) -> list[str]:
        """Returns all texts that are compiled."""
        found = list(self.files.values())
        for key in ("cpp_sources", "cuda_sources", "sycl_sources", "source"):
            value = self.arguments.get(key) or []
            found += [value] if isinstance(value, str) else list(value)
        return found

    @property
    def nbytes(self) -> int:
        return sum(len(text.encode(errors="replace")) for text in self.texts())

    def data(self) -> dict[str, Any]:
        return {"kind": self.kind, "name": self.name, "arguments": self.arguments, "files": self.files, "variables": self.variables}

    @classmethod
    def read(cls, data: object) -> BuildRequest:
        """Reads a request from a runner's message. Raises `ValueError` if it is invalid."""
        if not isinstance(data, dict) or data.get("kind") not in KINDS or not isinstance(data.get("arguments"), dict):
            raise ValueError("a build request is malformed")
        files, variables, name = data.get("files"), data.get("variables"), data.get("name")
        if not _texts(files) or not _texts(variables) or not isinstance(name, str) or len(name) > 200:
            raise ValueError("a build request is malformed")
        assert isinstance(files, dict) and isinstance(variables, dict)
        if len(files) > MAX_FILES or any(path.startswith("/") or ".." in path.split("/") for path in files) or set(variables) - set(VARIABLES):
            raise ValueError("a build request names something that it must not name")
        if any(not _argument(value) for value in data["arguments"].values()):
            raise ValueError("a build request is malformed")
        request = cls(data["kind"], name, data["arguments"], files, variables)
        if request.nbytes > MAX_BYTES:
            raise ValueError("a build request is too large")
        return request

    def placed(self, home: str) -> dict[str, Any]:
        """Returns the arguments for torch if `files` are located under `home`."""
        placed: dict[str, Any] = json.loads(json.dumps(self.arguments).replace(HOME, json.dumps(home)[1:-1]))
        return {"name": self.name, **placed}

    def environment(self, home: str) -> dict[str, str]:
        return {name: value.replace(HOME, home) for name, value in self.variables.items()}

    def write(self, home: str) -> None:
        """Writes `files` under `home`."""
        for path, text in self.files.items():
            target = Path(home, path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)


def _texts(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(key, str) and isinstance(text, str) for key, text in value.items())


def _argument(value: object) -> bool:
    """Returns whether an argument of torch's functions is valid: a string, a boolean, a list of strings, or a mapping of names."""
    if isinstance(value, list):
        return all(isinstance(item, str) for item in value)
    return value is None or isinstance(value, (str, bool, int)) or _texts(value)


def given() -> dict[str, str | None]:
    """Reads this process's environment variables before any program changes them."""
    return {name: os.environ.get(name) for name in VARIABLES}


def changed_since(told: dict[str, str | None]) -> dict[str, str]:
    return {name: os.environ.get(name, "") for name in VARIABLES if os.environ.get(name) != told[name]}


def raw_request(language: str, source: str, flags: object) -> BuildRequest:
    """Returns the request for a call to the embedded helper `stitch_build`."""
    wanted = [str(flag) for flag in flags] if isinstance(flags, (list, tuple)) else []
    return BuildRequest("stitch_build", f"a raw {language} library", {"language": language, "source": source, "flags": wanted})


class CommonFlags:
    """The flags that torch gives every CUDA unit (`COMMON_NVCC_FLAGS`). Some programs change that list to get the operators of half types back, and a
    builder that has not loaded the program would not see it. Therefore, the changes become flags of the request."""

    def __init__(self, extension: ModuleType):
        self.extension = vars(extension)
        self.told = list(self.extension.get("COMMON_NVCC_FLAGS", []))

    def changes(self) -> list[str]:
        """Returns the flags that the program has added, and one that cancels each macro that it has removed."""
        now = [str(flag) for flag in self.extension.get("COMMON_NVCC_FLAGS", [])]
        removed = [flag for flag in self.told if flag not in now and flag.startswith("-D")]
        return [*("-U" + flag[2:].partition("=")[0] for flag in removed), *(flag for flag in now if flag not in self.told)]

    @contextlib.contextmanager
    def original(self) -> Iterator[None]:
        """While the context is open, torch uses its own list."""
        now = self.extension.get("COMMON_NVCC_FLAGS")
        self.extension["COMMON_NVCC_FLAGS"] = list(self.told)
        try:
            yield
        finally:
            self.extension["COMMON_NVCC_FLAGS"] = now


def request_of(
    kind: Kind,
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
    home: str,
    changed: dict[str, str],
    common: Sequence[str] = (),
) -> BuildRequest:
    """Returns the request for a call to torch's `function` ("load_inline" or "load") in a process whose own folder is `home`. The request includes
    every variable in `VARIABLES` that the program has `changed`, and its changes to torch's `common` flags for CUDA. Raises `TypeError` in the same
    cases as the call itself, and `RequestError`."""
    bound = inspect.signature(function).bind(*arguments, **keywords).arguments
    defaults = {name: parameter.default for name, parameter in inspect.signature(function).parameters.items()}
    given = {name: _plain(value) for name, value in bound.items() if name not in _NOT_WHAT and (value is not defaults[name])}
    if given.pop("is_standalone", False):
        raise RequestError("is_standalone makes an executable, and a program must not start processes: build a module, and call its functions")
    folders = _Folders(home)
    name = str(given.pop("name", ""))
    if kind == "load":
        given["sources"] = folders.sources(given["sources"])
    for key in _FLAG_LISTS:
        if isinstance(given.get(key), list):
            given[key] = [folders.flag(flag) for flag in given[key]]
    if given.get("extra_include_paths"):
        paths = given["extra_include_paths"]
        given["extra_include_paths"] = [folders.add(path) for path in ([paths] if isinstance(paths, str) else paths)]
    beside = bound.get("build_directory")
    own = folders.add(os.fspath(beside)) if beside and kind == "load_inline" else ""
    cuda = given.get("cuda_sources") or given.get("with_cuda") or any(path.endswith((".cu", ".cuh")) for path in given.get("sources", []))
    if cuda and common:
        given["extra_cuda_cflags"] = [*common, *(given.get("extra_cuda_cflags") or [])]
    variables = {key: value.replace(home + "/", HOME + "/") for key, value in changed.items() if cuda or key not in _FOR_CUDA}
    for folder in (part for key in _SEARCHED for part in changed.get(key, "").split(os.pathsep) if part):
        folders.add(folder)
    request = BuildRequest(kind, name, given, {}, variables)
    folders.follow(request.texts())
    if own and any(f"{HOME}/{path}".startswith(own + "/") for path in folders.files):
        given["extra_include_paths"] = [*(given.get("extra_include_paths") or []), own]  # torch writes inline sources to the same folder
    return BuildRequest(kind, name, given, folders.files, variables)


def _plain(value: Any) -> Any:
    """Converts a value to plain JSON."""
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): str(item) for key, item in value.items()}
    return value if value is None or isinstance(value, (bool, int)) else str(value)


class _Folders:
    """The program's own files that its request needs: the sources, and any files that they include from folders that the program created."""

    def __init__(self, home: str):
        self.home = os.path.realpath(home)
        self.spelled = home
        self.included: list[str] = []  # folders in the home folder, in order
        self.files: dict[str, str] = {}
        self.size = 0

    def inside(self, path: str) -> str:
        """Returns the path relative to the home folder, or "" if the path is outside it."""
        real = os.path.realpath(os.path.join(self.spelled, path))
        return os.path.relpath(real, self.home) if real.startswith(self.home + os.sep) else ""

    def add(self, folder: str) -> str:
        """Adds an include folder and returns it in the form used in arguments. A folder that does not belong to the program is returned unchanged."""
        if os.path.realpath(os.path.join(self.spelled, folder)) == self.home:
            path, named = ".", HOME
        else:
            path = self.inside(folder)
            named = f"{HOME}/{path}" if path else os.path.realpath(folder) if os.path.exists(folder) else folder
        if path and path not in self.included:
            self.included.append(path)
        return named

    def flag(self, flag: str) -> str:
        match = _PATH_FLAG.fullmatch(flag)
        if match is None:
            return flag
        path = match["path"]
        if os.path.isfile(path) and self.inside(path):
            self.take(self.inside(path))
            return f"{match['flag']}{match['space']}{HOME}/{self.inside(path)}"
        return f"{match['flag']}{match['space']}{self.add(path)}"

    def sources(self, paths: Any) -> list[str]:
        found = []
        for path in [paths] if isinstance(paths, str) else paths:
            if not os.path.isfile(os.path.join(self.spelled, path)):
                raise RequestError(
                    f"load names the file {path}, which is not there: a program is one source file and comes without other files; keep the "
                    "kernel's text in the program, and give it to load_inline, or write the file before load is called"
                )
            inside = self.inside(path)
            if inside:
                self.take(inside)
            found.append(f"{HOME}/{inside}" if inside else path)
        return found

    def take(self, path: str) -> None:
        """Adds a file from the home folder and everything that it includes."""
        if path in self.files:
            return
        try:
            text = Path(self.home, path).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise RequestError(f"{path} cannot be read as text: {error}") from None
        self.size += len(text)
        if self.size > MAX_BYTES or len(self.files) >= MAX_FILES:
            raise RequestError(f"a build may have {MAX_FILES} files of {MAX_BYTES >> 20} MiB in all: this one exceeds that")
        self.files[path] = text
        self.follow([text], os.path.dirname(path) or ".")

    def follow(self, texts: list[str], beside: str = "") -> None:
        """Adds the files that `texts` include from the program's folders."""
        for text in texts:
            for name in _INCLUDE.findall(text):
                for folder in dict.fromkeys([*([beside] if beside else []), *self.included]):
                    path = self.inside(os.path.join(folder, name))
                    if path and os.path.isfile(os.path.join(self.home, path)):
                        self.take(path)
                        break
