"""Inspects a program's source. A few hard rules lead to `rejected`; all other findings are evidence for a reviewer.

The rules read the syntax tree, so a comment, a docstring or a `pass` never triggers one.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from verifier.integrity.script_only import script_only
from verifier.report import Finding, Severity

# `sys.exit` is missing: it raises SystemExit, which a party reports like any other exception, and self-tests end with it.
_PROCESS = {
    "os": {
        "system",
        "popen",
        "fork",
        "forkpty",
        "kill",
        "killpg",
        "_exit",
        "abort",
        "execv",
        "execve",
        "execvp",
        "execl",
        "posix_spawn",
        "spawnl",
        "spawnv",
    },
    "subprocess": {"run", "Popen", "call", "check_call", "check_output", "getoutput"},
    "multiprocessing": {"Process", "Pool"},
    "signal": {"signal", "raise_signal", "setitimer", "alarm"},
    "pty": {"spawn", "fork"},
}
# Advice for programs that start another process, which is usually a compiler or a download.
_INSTEAD = (
    "a program must not start processes: give the source to torch.utils.cpp_extension.load_inline (or load, or stitch_build for a plain C ABI and "
    "ctypes), and the verifier's builder compiles it; CUTLASS's headers are on its include path where the host has them, and nothing is downloaded"
)
_STARTS = {"system", "popen", "posix_spawn", "spawnl", "spawnv", "execv", "execve", "execvp", "execl"}
_FRAMES = {
    ("gc", "get_objects"),
    ("gc", "get_referrers"),
    ("inspect", "currentframe"),
    ("inspect", "getouterframes"),
    ("inspect", "stack"),
    ("sys", "_current_frames"),
    ("sys", "_getframe"),
    ("sys", "setprofile"),
    ("sys", "settrace"),
    ("traceback", "walk_stack"),
}
_COLLECTOR = {"collect", "enable", "disable", "isenabled", "freeze", "unfreeze", "get_threshold", "set_threshold"}  # allowed functions of gc
_GUARDED = {"gc", "sys", "os", "builtins", "inspect", "signal", "subprocess", "ctypes"}  # their attributes must not be looked up by name
_FRAME_ATTRIBUTES = {"f_back", "f_locals", "f_globals", "tb_frame", "gi_frame", "cr_frame", "__subclasses__"}
_DOWNLOAD_MODULES = {"socket", "urllib", "http", "requests", "ftplib", "aiohttp", "httpx", "ssl", "smtplib", "telnetlib", "huggingface_hub"}
_DOWNLOAD_CALLS = {("torch.hub", "load"), ("torch.hub", "load_state_dict_from_url"), ("torch.hub", "download_url_to_file")}
_TIMERS = {"time", "torch.cuda", "torch.utils.benchmark", "timeit"}
_PATCHED_ROOTS = {"torch", "F", "nn", "time", "builtins", "ctypes", "sys", "gc", "statistics"}
# A program may change settings within its own process. Builders know the location of the toolkit and ignore such settings.
_SETTINGS = (
    "torch.backends.",
    "torch._dynamo.config.",
    "torch._inductor.config.",
    "torch._functorch.config.",
    "torch.utils.cpp_extension.CUDA_HOME",
    "torch.utils.cpp_extension.COMMON_NVCC_FLAGS",
    "sys.stdout",  # programs silence a build; contextlib.redirect_stdout does the same
    "sys.stderr",
)
_PROTOTYPE = re.compile(r"ctypes\.pythonapi\.\w+\.(?:restype|argtypes|errcheck)")  # declares a function's types, as ctypes asks for
_UNPICKLERS = {"pickle", "_pickle", "marshal", "dill", "cloudpickle"}
_DECODERS = {"b64decode", "b32decode", "b85decode", "a85decode", "unhexlify", "fromhex", "decompress", "loads"}
_LIBRARY_CALL = re.compile(r"\b(at::(matmul|mm|bmm|addmm|linear|conv\w*|softmax|layer_norm)|cublas\w+|cudnn\w+|cblas_\w+|mkl_\w+|dlsym|dlopen)\b")
_TAMPERING = re.compile(
    r"\b(dl_iterate_phdr|mprotect|pkey_mprotect|ptrace|process_vm_readv|process_vm_writev|userfaultfd|LD_PRELOAD|cupti[A-Z]\w*|(?:is)?[pP]rofilerEnabled)\b"
)
# Matches a call that is a statement or part of an expression. After a type, it would be a declaration; after a dot, it belongs to another object.
_NATIVE_PROCESS = re.compile(
    r"(?:(?<=[;{}()=,!&|?:<])|(?<=[^-]>)|\b(?:return|else|do))\s*(?:::|std::)?\b(v?fork|execl[ep]?|execv(?:p|e|pe)?|system|popen|posix_spawnp?|daemon)\s*\("
    r"|\b((?:SYS|__NR)_(?:v?fork|clone3?|execve(?:at)?))\b"
)
_NATIVE_NOTES = (
    ("threads", re.compile(r"\b(pthread_create|std::thread|std::jthread|std::async)\b"), "starts a thread: work must be done when forward returns"),
    ("l2-persist", re.compile(r"\b(accessPolicyWindow|cudaAccessPropertyPersisting|cudaLimitPersistingL2CacheSize)\b"), "pins lines in L2"),
    ("timer", re.compile(r"\b(clock_gettime|gettimeofday|cudaEventElapsedTime)\b"), "reads a clock"),
    ("exit-handler", re.compile(r"\b(atexit|__attribute__\s*\(\(\s*destructor)\b"), "runs code when the process ends"),
)
_SENSES = {
    "_profiler_enabled",
    "_profiler_type",
    "_kineto_available",
    "kineto_available",
    "_is_profiler_enabled",
    "_autograd_enter_dual_level",
    "_len_torch_dispatch_stack",
    "_get_current_dispatch_mode",
}
_C_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_KERNEL = re.compile(
    r"__global__|extern\s+\"C\"|PYBIND11_MODULE|TORCH_LIBRARY|\btorch::Tensor\s+\w+\s*\(|\bat::Tensor\s+\w+\s*\(|PyMODINIT_FUNC|\.visible\s+\.entry"
)
_MAKES_KERNEL = re.compile(r"jit|\bkernel\b|autotune")  # decorators of Triton, Numba, CuTe


def inspect_source(tree: ast.Module, source: str) -> list[Finding]:
    """Returns findings in line order. The embedded build helper, recognised by its text, causes no findings. Nothing is refused for code
    that only a script runs, such as a self-test."""
    helper = _helper_lines(source)
    names = _import_names(tree)
    findings: list[Finding] = []
    idle = script_only(tree)
    for node in ast.walk(tree):
        line = getattr(node, "lineno", None)
        if line is None or line in helper:
            continue
        for rule, severity, message in _node_findings(node, names):
            if id(node) in idle and severity == "refuse":
                severity, message = "note", f"if the file is started as a script, which no verifier does: {message}"
            findings.append(Finding(rule=rule, severity=severity, message=message, line=line))
    findings.extend(_evidence(tree, source, helper))
    unique = {(finding.rule, finding.line): finding for finding in findings}
    return sorted(unique.values(), key=lambda finding: finding.line or 0)


def _helper_lines(source: str) -> range:
    text = (Path(__file__).parent.parent / "build" / "inline_helper.py").read_text().strip()
    at = source.find(text)
    if at < 0:
        return range(0)
    first = source.count("\n", 0, at) + 1
    return range(first, first + text.count("\n") + 1)


def _import_names(tree: ast.Module) -> dict[str, str]:
    """Maps a local name to the dotted name that it was imported from."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.split(".")[0]] = alias.name if alias.asname else alias.name.split(".")[0]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def refers_to(tree: ast.Module, name: str) -> bool:
    """Returns whether a source's code, as opposed to its comments and texts, names a library's function, such as torch.compile, by whatever name it
    imports it."""
    names = _import_names(tree)
    return any(isinstance(node, (ast.Attribute, ast.Name)) and _dotted(node, names) == name for node in ast.walk(tree))


def calls_method(tree: ast.Module, name: str) -> bool:
    """Returns whether a source's code calls a method of this name, such as `self.net.compile()`, as opposed to a function of an imported module."""
    imported = _import_names(tree)
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == name)
    return any(_root(function) not in imported for function in calls)


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _dotted(node: ast.expr, names: dict[str, str]) -> str:
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([names.get(node.id, node.id), *reversed(parts)])


def _node_findings(node: ast.AST, names: dict[str, str]) -> list[tuple[str, Severity, str]]:
    found: list[tuple[str, Severity, str]] = []
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
        for module in modules:
            if module.split(".")[0] in _DOWNLOAD_MODULES:
                found.append(("download", "refuse", f"imports {module!r}: a program must not use the network"))
        if any(module.split(".")[0] == "verifier" for module in modules):
            found.append(("harness", "refuse", "imports the verifier: a program must not access its measurement"))
    elif isinstance(node, ast.Call):
        found += _call_findings(node, names)
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and names.get(node.value.id) == "gc" and node.attr not in _COLLECTOR:
        found.append(("frames", "refuse", f"reads gc.{node.attr}: a program must not search the objects of its process"))
    elif isinstance(node, ast.Attribute) and node.attr in _SENSES:
        found.append(("senses", "downgrade", f"reads {node.attr!r}: the program checks whether it is watched"))
    elif isinstance(node, ast.Attribute) and node.attr in _FRAME_ATTRIBUTES:
        found.append(("frames", "refuse", f"reads {node.attr!r}: a program must not inspect its caller"))
    elif isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Delete)):
        targets = node.targets if isinstance(node, (ast.Assign, ast.Delete)) else [node.target]
        for target in targets:
            if isinstance(target, ast.Attribute):
                dotted = _dotted(target, names)
                lawful = dotted.startswith(_SETTINGS) or _PROTOTYPE.fullmatch(dotted)
                if dotted.split(".")[0] in _PATCHED_ROOTS and "." in dotted and not lawful:
                    found.append(("patching", "refuse", f"assigns to {dotted}: a program must not change the libraries or clocks that it runs on"))
                if target.attr in ("__code__", "__globals__", "__class__") and dotted.split(".")[0] != "self":
                    found.append(("patching", "refuse", f"assigns to {target.attr}"))
    elif isinstance(node, ast.Constant) and isinstance(node.value, str) and re.match(r"verifier(\.\w+)+$", node.value):
        found.append(("harness", "refuse", f"names {node.value!r}: a program must not access its measurement"))
    elif isinstance(node, ast.Constant) and isinstance(node.value, str) and re.match(r"/proc(/|$)|/sys/fs/cgroup|/dev/mem", node.value):
        found.append(("proc", "refuse", f"names {node.value[:60]!r}: a program must not inspect processes"))
    return found


def _call_findings(node: ast.Call, names: dict[str, str]) -> list[tuple[str, Severity, str]]:
    called = _dotted(node.func, names)
    owner, _, name = called.rpartition(".")
    if called in ("exec", "eval", "compile", "__import__", "builtins.exec", "builtins.eval") and not _plain(node):
        inner = [part for argument in node.args for part in ast.walk(argument)]
        decoded = any(isinstance(part, ast.Call) and _last(part.func) in _DECODERS | {"chr", "join"} for part in inner)
        if decoded:
            return [("obfuscation", "refuse", f"{called} of text that is decoded at run time: the source must show what it runs")]
        return [("dynamic-code", "note", f"{called} of text made at run time")]
    if owner in _UNPICKLERS and name in ("load", "loads", "Unpickler"):
        return [("obfuscation", "refuse", f"{called} runs arbitrary bytes: the source must show what it runs")]
    named = len(node.args) > 1 and isinstance(node.args[1], ast.Constant)
    if called in ("getattr", "vars") and node.args and not named and _dotted(node.args[0], names) in _GUARDED:
        return [("obfuscation", "refuse", f"{called} on {_dotted(node.args[0], names)}: the source must show what it calls")]
    if name in _PROCESS.get(owner, ()) and (owner == "subprocess" or name in _STARTS):
        return [("process-control", "refuse", f"calls {called}: {_INSTEAD}")]
    if name in _PROCESS.get(owner, ()):
        return [("process-control", "refuse", f"calls {called}: a program must not start or end processes")]
    if (owner, name) in _FRAMES:
        return [("frames", "refuse", f"calls {called}: a program must not inspect its caller")]
    if (owner, name) in _DOWNLOAD_CALLS:
        return [("download", "refuse", f"calls {called}: a program must not use the network")]
    if called == "setattr" and node.args and _dotted(node.args[0], names).split(".")[0] in _PATCHED_ROOTS:
        return [("patching", "refuse", f"setattr on {_dotted(node.args[0], names)}: a program must not change the libraries that it runs on")]
    if called in ("getattr", "builtins.getattr") and len(node.args) > 1 and not isinstance(node.args[1], (ast.Constant, ast.Name)):
        root = _dotted(node.args[0], names)
        if root.split(".")[0] == "torch":
            return [("dynamic-name", "note", f"an operator of {root} by a name that is assembled at run time")]
    if called in ("os.dup", "os.dup2", "os.fdopen", "os.write", "os.read", "os.sendfile"):
        return [("descriptor", "note", f"calls {called}: a program must not use descriptors that it did not open")]
    if called in ("sys.setswitchinterval", "os.sched_setaffinity", "os.nice", "os.setpriority"):
        return [("scheduling", "note", f"calls {called}")]
    if name in ("record", "Event", "elapsed_time", "synchronize") and owner in _TIMERS:
        return [("timer", "note", f"calls {called}")]
    if owner == "threading" and name == "Thread":
        return [("threads", "note", "starts a thread: work must be done when forward returns")]
    if called in ("torch.compile", "torch.jit.script", "torch.jit.trace"):
        return [("compiler", "note", f"calls {called}: a compiler's kernels are not the program's own")]
    if called in ("torch.cuda.Stream", "torch.cuda.stream"):
        return [("streams", "note", "uses a stream of its own: the clock waits for the whole device")]
    return []


def _plain(node: ast.Call) -> bool:
    return bool(node.args) and isinstance(node.args[0], ast.Constant)


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _evidence(tree: ast.Module, source: str, helper: range) -> list[Finding]:
    findings = []
    kernels = False
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if _KERNEL.search(node.value):
                kernels = True
                findings += native_findings(node.value, node.lineno)
            elif len(node.value) > 2000 and re.fullmatch(r"[A-Za-z0-9+/=\s]+", node.value):
                findings.append(Finding(rule="blob", severity="note", message="a long encoded text", line=node.lineno))
        elif isinstance(node, ast.FunctionDef) and any(_MAKES_KERNEL.search(ast.unparse(decorator)) for decorator in node.decorator_list):
            kernels = True
        elif isinstance(node, ast.Try) and node.lineno not in helper:
            findings.append(
                Finding(rule="fallback", severity="note", message="try/except: a failing kernel could fall back unnoticed", line=node.lineno)
            )
        elif isinstance(node, ast.ClassDef) and any(ast.unparse(base).split(".")[-1] == "Model" for base in node.bases):
            findings.append(Finding(rule="subclass", severity="note", message="a class is derived from Model", line=node.lineno))
    if not kernels:
        findings.append(Finding(rule="no-kernel", severity="note", message="the source defines no kernel of its own"))
    return findings


def native_findings(source: str, first: int, spread: bool = True) -> list[Finding]:
    """Returns findings in native code, ignoring comments. Code that modifies or inspects other code in the process is never part of a kernel. `first`
    is the program line on which the code begins. Unless the code is `spread` over the following lines, all of it belongs to that line."""
    text = _C_COMMENT.sub(lambda comment: re.sub(r"[^\n]", " ", comment[0]), source)

    def line(match: re.Match[str]) -> int:
        return first + (text.count("\n", 0, match.start(match.lastindex or 0)) if spread else 0)

    found = [
        Finding(rule="tampering", severity="refuse", message=f"native code names {m[0]}: a program must not modify other code", line=line(m))
        for m in _TAMPERING.finditer(text)
    ]
    for m in _NATIVE_PROCESS.finditer(text):
        name = m[1] or m[2]
        if not re.search(rf"[\w*&>]\s+[*&]?{name}\s*\([^;{{}}]*\)\s*\{{|\bauto\s+{name}\s*=\s*\[", text):  # otherwise it is the program's own
            message = f"native code calls {name}: a program must not start or end processes"
            found.append(Finding(rule="process-control", severity="refuse", message=message, line=line(m)))
    for rule, pattern, message in _NATIVE_NOTES:
        found += [Finding(rule=rule, severity="note", message=f"native code {message}", line=line(m)) for m in pattern.finditer(text)]
    for m in _LIBRARY_CALL.finditer(source):
        found.append(Finding(rule="library-in-kernel", severity="note", message=f"native code names {m[0]}", line=line(m)))
    return found
