"""Rewrites a program with different names, so that a rule that looks for words, comments or docstrings no longer matches it.

It renames everything that the source itself defines: modules' and functions' locals, functions, classes, parameters, attributes, and the functions,
kernels and types of its C++ and CUDA strings, both in Python and in the strings. Names given by an outside API stay: `ModelNew`, `forward`, dunder
names, attributes of torch, ctypes and the standard library, keywords of calls, and names from the task, which are used to load its state.
"""

from __future__ import annotations

import ast
import builtins
import ctypes
import io
import keyword
import re
import socket
import threading
from functools import cache
from pathlib import Path

HELPER = (Path(__file__).resolve().parents[2] / "verifier" / "build" / "inline_helper.py").read_text().strip()
_PLACE = "stitch_build_helper_stands_here"
_OUTSIDE_NAMES = frozenset(("ModelNew", "forward", "stitch_build", "self", "cls", "_fields_", "_flags_"))
_C_KEYWORDS = frozenset(
    ("if", "for", "while", "switch", "return", "sizeof", "catch", "do", "else", "alignof", "decltype", "static_assert", "defined", "operator", "main")
)
_C_FUNCTION = re.compile(r"\b([A-Za-z_]\w*)\s*\((?:[^;{}()]|\([^;{}()]*\))*\)\s*(?:const\s*|noexcept\s*)?\{")
_C_TYPE = re.compile(r"\b(?:struct|class|union)\s+([A-Za-z_]\w*)\s*\{")
_C_TEXT = re.compile(r"__global__|__device__|extern\s+\"C\"|#include|PYBIND11|torch::Tensor|\basm\b|\bvoid\s+\w+\s*\(")
_C_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_WORD = re.compile(r"[A-Za-z_]\w*")
_BY_STRING = frozenset({"getattr", "setattr", "hasattr", "delattr", "get", "pop", "setdefault"})


@cache
def _outside() -> frozenset[str]:
    """Returns the names given by an outside API. PyTorch is imported only here, because importing it takes two seconds and code that merely chooses
    among the tests does not need it."""
    import torch

    of_torch = (torch, torch.nn, torch.nn.functional, torch.cuda, torch.nn.Module, torch.Tensor)
    of_autograd = (torch.autograd.Function, torch.autograd.function.FunctionCtx)
    of_python = (ctypes, ctypes.CDLL, ctypes.Structure, socket.socket, threading, threading.Thread, io.BytesIO, builtins, object, type)
    plain = (list, dict, set, str, bytes, int, float, tuple, property)
    return _OUTSIDE_NAMES.union(*map(dir, (*of_torch, *of_autograd, *of_python, *plain)))


def renamed(source: str, task_source: str = "") -> str:
    """Returns `source` stripped of its own names, comments and docstrings. The embedded build helper is left unchanged, since it is recognised by its
    text."""
    has_helper = HELPER in source
    tree = ast.parse(source.replace(HELPER, f"{_PLACE} = 0") if has_helper else source)
    _drop_docstrings(tree)
    kept = _outside() | set(_WORD.findall(task_source)) | _keywords(tree) | _overridden(tree) | _in_code_strings(tree) | {_PLACE}
    native = _native_names(tree)
    attributes = _own_attributes(tree)
    class_level = _class_level(tree)
    bound = _bound(tree) | native
    names = {name for name in bound if _renamable(name) and name not in kept and (name not in class_level or name in attributes)}
    members = {name for name in attributes | native if _renamable(name) and name not in kept}
    new = {name: f"n{number}" for number, name in enumerate(sorted(names | members))}
    used = set(_WORD.findall(source))
    new = {name: fresh if fresh not in used else f"{fresh}_x" for name, fresh in new.items()}
    tree = _Renamer({n: new[n] for n in names}, {n: new[n] for n in members}, {n: new[n] for n in native if n in new}).visit(tree)
    text = ast.unparse(ast.fix_missing_locations(tree)) + "\n"
    return text.replace(f"{_PLACE} = 0", "\n" + HELPER + "\n") if has_helper else text


def _renamable(name: str) -> bool:
    return not (name.startswith("__") and name.endswith("__")) and not keyword.iskeyword(name) and not hasattr(builtins, name)


def _drop_docstrings(tree: ast.Module) -> None:
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]


def _keywords(tree: ast.Module) -> set[str]:
    """Returns the names by which some call passes an argument to a parameter whose owner is unknown."""
    return {node.arg for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg}


def _overridden(tree: ast.Module) -> set[str]:
    """Yields the parameters of methods that an outside class calls, perhaps by keyword."""
    methods = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name in _outside() - {"forward", "__init__"}]
    return {part.arg for method in methods for part in ast.walk(method.args) if isinstance(part, ast.arg)}


def _in_code_strings(tree: ast.Module) -> set[str]:
    """Returns the words in texts that are run as Python."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("exec", "eval", "compile"):
            for part in ast.walk(node):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    found |= set(_WORD.findall(part.value))
    return found


def _bound(tree: ast.Module) -> set[str]:
    """Returns every name that the source binds, except modules imported under their own names."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)) or isinstance(node, ast.ExceptHandler) and node.name:
            found.add(node.name)
        elif isinstance(node, ast.alias) and node.asname:
            found.add(node.asname)
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom)) for alias in node.names if not alias.asname}
    return found - {name.split(".")[0] for name in imported}


def _class_level(tree: ast.Module) -> set[str]:
    """Returns names bound in class bodies, which are also attributes."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for item in node.body:
                if isinstance(item, (ast.FunctionDef, ast.ClassDef)):
                    found.add(item.name)
                else:
                    found |= {part.id for part in ast.walk(item) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
    return found


def _own_attributes(tree: ast.Module) -> set[str]:
    """Returns attributes that the source defines on `self`, on its classes or on its functions."""
    found = _class_level(tree)
    own = {node.name for node in ast.walk(tree) if isinstance(node, (ast.ClassDef, ast.FunctionDef))} | {"self", "cls"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name) and node.value.id in own:
            found.add(node.attr)
    return found


def _is_native(text: str) -> bool:
    return bool(_C_TEXT.search(text)) and "(" in text


def _native_names(tree: ast.Module) -> set[str]:
    """Returns functions, kernels and types that C++ and CUDA texts define."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _is_native(node.value):
            text = _C_COMMENT.sub(" ", node.value)
            found |= set(_C_FUNCTION.findall(text)) | set(_C_TYPE.findall(text))
    return {name for name in found if name not in _C_KEYWORDS and not name.startswith("__") and not name.isupper()}


class _Renamer(ast.NodeTransformer):
    def __init__(self, names: dict[str, str], members: dict[str, str], native: dict[str, str]):
        self.names = names
        self.members = members
        self.native = native

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self.names.get(node.id, node.id)
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.arg = self.names.get(node.arg, node.arg)
        return self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.name = self.names.get(node.name, node.name)
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.name = self.names.get(node.name, node.name)
        return self.generic_visit(node)

    def visit_Global(self, node: ast.Global) -> ast.AST:
        node.names = [self.names.get(name, name) for name in node.names]
        return node

    def visit_Nonlocal(self, node: ast.Nonlocal) -> ast.AST:
        node.names = [self.names.get(name, name) for name in node.names]
        return node

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        node.name = self.names.get(node.name, node.name) if node.name else None
        return self.generic_visit(node)

    def visit_alias(self, node: ast.alias) -> ast.AST:
        node.asname = self.names.get(node.asname, node.asname) if node.asname else None
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        node.attr = self.members.get(node.attr, node.attr)
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        called = node.func.id if isinstance(node.func, ast.Name) else node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if called in _BY_STRING:
            for argument in node.args:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    argument.value = self.members.get(argument.value, self.names.get(argument.value, argument.value))
        return self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, str) and self.native:
            if node.value in self.native:  # a function that a binding requests by name
                node.value = self.native[node.value]
            elif _is_native(node.value):
                text = _C_COMMENT.sub(" ", node.value)
                node.value = _WORD.sub(lambda word: self.native.get(word[0], word[0]), text)
        return node
