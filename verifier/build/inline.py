"""Replaces `load_inline` and `load` of `torch.utils.cpp_extension` and the embedded `stitch_build`. Builders compile; runners only look up
libraries."""

# sandboxed: loads libraries that programs asked for

from __future__ import annotations

import contextlib
import glob
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from verifier.build.artefacts import MAX_FAILURE, Asked
from verifier.build.extension import Accelerator
from verifier.build.raw import RawRequest
from verifier.build.request import BuildRequest, CommonFlags, Kind, changed_since, given, raw_request, request_of
from verifier.build.wish import tell

EXTENSION = "torch.utils.cpp_extension"
TORCHS: tuple[Kind, ...] = ("load_inline", "load")


class NotBuilt(RuntimeError):
    """A failed build. It is reported to the program as torch would report it, which lets a program with a fallback continue."""


class Workshop:
    """The builder's side. Compiles each request into `folder`/<key>/ and keeps only the library. `headers` is the folder of precompiled headers."""

    def __init__(self, folder: str, home: str, headers: str = ""):
        self.folder = folder
        self.home = home
        self.accelerator = Accelerator(headers)
        self.given = given()
        self.asked: list[Asked] = []
        self.plain: dict[Kind, Callable[..., Any]] = {}

    def install(self) -> None:
        """Redirects the program's calls to this object."""
        _with_extension(self.replace)

    def replace(self, extension: ModuleType) -> None:
        self.accelerator.install(extension)
        show_stubs()
        toolkit, common = vars(extension).get("CUDA_HOME"), CommonFlags(extension)
        for kind in TORCHS:
            self.plain[kind] = getattr(extension, kind)
            setattr(extension, kind, self._asking(kind, extension, toolkit, common))

    def _asking(self, kind: Kind, extension: ModuleType, toolkit: Any, common: CommonFlags) -> Callable[..., Any]:
        def ask(*arguments: Any, **keywords: Any) -> Any:
            extension.__dict__["CUDA_HOME"] = toolkit  # the host determines where the toolkit is
            request = request_of(kind, self.plain[kind], arguments, keywords, self.home, changed_since(self.given), common.changes())
            with common.original():
                return self.make(request)

        return ask

    def make(self, request: BuildRequest) -> Any:
        """Builds and returns the module. Raises the compilers' error. If no library was produced, `asked` also records the error."""
        scratch = os.path.join(os.path.dirname(self.folder), "inline-" + request.key)
        target = os.path.join(self.folder, request.key)
        begin = time.monotonic()
        made = sorted(glob.glob(os.path.join(target, "*.so")))
        if made:  # already requested once; otherwise, torch would look for it in its old location
            return opened(request, made)
        os.makedirs(os.path.join(scratch, "made"), exist_ok=True)
        request.write(scratch)
        failure = ""
        try:
            return self.plain[request.kind](**request.placed(scratch), build_directory=os.path.join(scratch, "made"))
        except Exception as error:
            failure = str(error) or type(error).__name__
            raise
        finally:
            for library in glob.glob(os.path.join(scratch, "made", "*.so")):
                os.makedirs(target, exist_ok=True)
                os.replace(library, os.path.join(target, os.path.basename(library)))
            self.add(request, begin, "" if os.path.isdir(target) else failure)

    def add(self, request: BuildRequest, begin: float, failure: str) -> None:
        """Records a request. A repeated request is recorded only once."""
        seconds = round(time.monotonic() - begin, 3)
        one = Asked(request.kind, request.name, request.key, request.digest, request.nbytes, seconds=seconds, failure=failure[:MAX_FAILURE])
        one.line = calling_line()
        self.asked = [*(other for other in self.asked if other.key != one.key), one]


def show_stubs() -> None:
    """Lets a builder, which has no driver installed, link against the driver library."""
    stubs = os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "lib64", "stubs")
    if os.path.isdir(stubs):
        os.environ["LIBRARY_PATH"] = os.pathsep.join(filter(None, [os.environ.get("LIBRARY_PATH"), stubs]))


def calling_line() -> int | None:
    """Returns the innermost line of the program that this thread is executing."""
    frame = sys._getframe(1)
    while frame is not None:
        if os.path.basename(frame.f_code.co_filename) == "program.py":
            return frame.f_lineno
        frame = frame.f_back  # type: ignore[assignment]  # the outermost has none
    return None


def opened(request: BuildRequest, found: list[str], wrap: Callable[[ModuleType], ModuleType] = lambda module: module) -> Any:
    """Returns what torch's function would return for an existing library. `found` lists the library's paths; a path that contains the module's name
    takes precedence."""
    named = next((path for path in found if os.path.basename(path) == f"{request.name}.so"), found[0])
    if not request.arguments.get("is_python_module", True):
        import torch

        torch.ops.load_library(named)
        return named
    name = os.path.basename(named).removesuffix(".so")
    spec = importlib.util.spec_from_file_location(name, named)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[name] = module
    return wrap(module)


class Lookup:
    """The runner's side. Finds the libraries that builders have produced for the same requests. If a request was never built, this process exits and
    leaves a note for the judge at `wish`. `failed` maps the key of a request to the compiler output. `wrap` wraps modules whose calls are
    monitored."""

    def __init__(self, folder: str, home: str, failed: dict[str, str], wish: int, wrap: Callable[[ModuleType], ModuleType] = lambda module: module):
        self.folder = folder
        self.home = home
        self.failed = failed
        self.wish = wish
        self.wrap = wrap
        self.given = given()

    def install(self) -> None:
        _with_extension(self._replace)

    def _replace(self, extension: ModuleType) -> None:
        plain = vars(extension).setdefault("_stitch_plain", {kind: getattr(extension, kind) for kind in TORCHS})
        common = vars(extension).setdefault("_stitch_common", CommonFlags(extension))  # before a program changes them
        for kind in TORCHS:
            setattr(extension, kind, self._finding(kind, plain[kind], common))

    def _finding(self, kind: Kind, plain: Callable[..., Any], common: CommonFlags) -> Callable[..., Any]:
        def find(*arguments: Any, **keywords: Any) -> Any:
            return self.find(request_of(kind, plain, arguments, keywords, self.home, changed_since(self.given), common.changes()))

        return find

    def find(self, request: BuildRequest) -> Any:
        found = sorted(glob.glob(os.path.join(self.folder, request.key, "*.so")))
        if not found:
            self.lack(request)
        return opened(request, found, self.wrap)

    def lack(self, request: BuildRequest) -> None:
        if request.key in self.failed:
            raise NotBuilt(self.failed[request.key])
        tell(self.wish, {"request": request.data(), "line": calling_line()})

    def after_import(self, module: ModuleType, source: str) -> None:
        """If the program contains the embedded helper verbatim, hooks the helper to request its missing libraries as well."""
        plain = getattr(module, "stitch_build", None)
        if plain is None or Path(__file__).with_name("inline_helper.py").read_text().strip() not in source:
            return

        def stitch_build(language: str, source: str, flags: Any = ()) -> Any:
            request = raw_request(language, source, flags)
            library = RawRequest(language, source, tuple(request.arguments["flags"])).library(os.environ.get("STITCH_CUDA_ARCH", "native"))
            if not os.path.exists(os.path.join(self.folder, library)):
                self.lack(request)
            return plain(language, source, flags)

        vars(module)["stitch_build"] = stitch_build


def _with_extension(then: Callable[[ModuleType], None]) -> None:
    """Installs the replacement immediately, or when the program imports the module."""
    if "ninja" not in sys.modules:  # programs query the build tool's package for its location; a web framework has a package of the same name
        tool = ModuleType("ninja")
        tool.__dict__["BIN_DIR"] = os.path.dirname(sys.executable)
        sys.modules["ninja"] = tool
    if EXTENSION in sys.modules:
        then(sys.modules[EXTENSION])
    else:
        sys.meta_path.insert(0, OnImport(EXTENSION, then))


class OnImport(importlib.abc.MetaPathFinder):
    """Calls `then` with the `name` module after something has imported it. The import is slow, and most programs never need it."""

    def __init__(self, name: str, then: Callable[[ModuleType], None]):
        self.name = name
        self.then = then

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.name:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def executed(module: ModuleType) -> None:
            execute(module)
            self.then(module)

        spec.loader.exec_module = executed  # type: ignore[method-assign]  # of this one loader
        return spec


@contextlib.contextmanager
def nothing_loaded(extension: Any) -> Iterator[None]:
    """While the context is open, torch compiles extensions without loading them."""
    plain = extension._import_module_from_library
    extension._import_module_from_library = lambda *rest, **named: None
    try:
        yield
    finally:
        extension._import_module_from_library = plain
