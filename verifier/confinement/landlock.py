"""Landlock rules for files, TCP, abstract sockets and signals. A process imposes them on itself, through raw system calls, and cannot remove them.

Inside a mount namespace, Landlock is a second layer of protection; without bubblewrap, it is the only protection for files. The kernel's ABI version
determines what can be restricted: version 2 adds renames between folders, 3 truncation, 4 TCP, 5 device control, and 6 abstract sockets and signals.
Version 1 is not used because it cannot allow renames between folders, which compilers and caches need. (Source: the kernel's documentation,
userspace-api/landlock.)
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from functools import cache
from typing import Any

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_VERSION_FLAG, _PATH_BENEATH = 1, 1
_NO_NEW_PRIVILEGES = 38  # PR_SET_NO_NEW_PRIVS
LOWEST = 2

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
REMOVE_DIR, REMOVE_FILE, MAKE_CHAR, MAKE_DIR, MAKE_REG, MAKE_SOCK = (1 << bit for bit in range(4, 10))
MAKE_FIFO, MAKE_BLOCK, MAKE_SYM, REFER, TRUNCATE, IOCTL_DEVICE = (1 << bit for bit in range(10, 16))
TCP = 1 << 0 | 1 << 1  # bind, connect
SCOPES = 1 << 0 | 1 << 1  # abstract unix sockets, signals

READ = READ_FILE | READ_DIR | EXECUTE
CHANGE = WRITE_FILE | REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_REG | MAKE_SOCK | MAKE_FIFO | MAKE_SYM | REFER | TRUNCATE
DEVICE = READ_FILE | READ_DIR | WRITE_FILE | TRUNCATE | IOCTL_DEVICE  # a GPU's node is opened for reading and writing, but used only through ioctl
_OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEVICE


@cache
def abi() -> int:
    """Returns the kernel's ABI version, or 0 if Landlock is missing or disabled."""
    version: int = _libc().syscall(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint(_VERSION_FLAG))
    return max(version, 0)


def supported() -> bool:
    return abi() >= LOWEST


def lack() -> str:
    """Explains why Landlock cannot be used here and how to enable it."""
    if abi() == 0:
        return "Landlock: this kernel has none (Linux 5.19 or newer, with landlock among the modules of the boot parameter lsm=)"
    return f"Landlock: interface {abi()} of this kernel refuses renames between folders (Linux 5.19 or newer)"


def layer() -> str:
    """Returns, for a report, what Landlock restricts on this host."""
    what = ["files"]
    if abi() >= 4:
        what.append("TCP")
    if abi() >= 6:
        what += ["abstract sockets", "signals"]
    return f"Landlock {abi()} ({', '.join(what)})"


def restrict(rules: dict[str, Any]) -> None:
    """Confines the calling thread and every thread or process that it starts later. `rules` contains lists of paths for `read` (including execution),
    `write` (everything except device nodes), `device`, and `update` (writing to existing files). Paths that do not exist are skipped. `inward` also
    forbids TCP, abstract sockets, and signals to processes outside the domain. Raises `OSError`."""
    version = abi()
    files = _files(version)
    inward = bool(rules.get("inward"))
    attributes = struct.pack("<QQQ", files, TCP if inward and version >= 4 else 0, SCOPES if inward and version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    libc = _libc()
    ruleset = libc.syscall(_CREATE, attributes, ctypes.c_size_t(size), ctypes.c_uint(0))
    if ruleset < 0:
        raise OSError(ctypes.get_errno(), "landlock_create_ruleset")
    try:
        for name, access in (("read", READ), ("write", READ | CHANGE), ("device", DEVICE), ("update", READ | WRITE_FILE | TRUNCATE)):
            for path in rules.get(name, []):
                _allow(libc, ruleset, path, access & files)
        if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "no_new_privs")
        if libc.syscall(_RESTRICT, ruleset, ctypes.c_uint(0)) != 0:
            raise OSError(ctypes.get_errno(), "landlock_restrict_self")
    finally:
        os.close(ruleset)


def _files(version: int) -> int:
    """Returns every right that this kernel can restrict. A right that is not listed as handled would be granted everywhere."""
    bits = 16 if version >= 5 else 15 if version >= 3 else 14
    return (1 << bits) - 1


def _allow(libc: ctypes.CDLL, ruleset: int, path: str, access: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            access &= _OF_FILES
        rule = struct.pack("<Qi", access, fd)  # packed: no padding after the descriptor
        if libc.syscall(_ADD, ruleset, ctypes.c_uint(_PATH_BENEATH), rule, ctypes.c_uint(0)) != 0:
            raise OSError(ctypes.get_errno(), f"landlock_add_rule {path}")
    finally:
        os.close(fd)


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
