"""A seccomp filter in classic BPF. It blocks system calls that a party must never make, on x86-64 and arm64.

Denied calls fail with EPERM, so a Python traceback shows the line. A call for a foreign architecture kills the process. Attempts to set a priority
are ignored. Attempts to set processor affinity are ignored if the judge sets it or if OpenMP cannot.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import struct

_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

# name: (x86_64, aarch64); None if the architecture has no such call
_DENIED: dict[str, tuple[int | None, int | None]] = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "mount_setattr": (442, 442),
    "unshare": (272, 97),
    "setns": (308, 268),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "quotactl": (179, 60),
    "acct": (163, 89),
    "syslog": (103, 116),
    "open_by_handle_at": (304, 265),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
}
_AFFINITY = (203, 122)  # sched_setaffinity is ignored if the judge binds parties to processors (`verifier/confinement/binding.py`)
# No party is allowed a higher priority than another party on the same processor.
_PRIORITY = {
    "setpriority": (141, 140),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setattr": (314, 274),
    "ioprio_set": (251, 30),
}
_IGNORED = 0x00050000  # the call returns 0 and has no effect, which lets a library that pins its threads continue
_SOCKET = (41, 198)
_CLONE = (56, 220)
_CLONE3 = (435, 435)
_NEW_NAMESPACES = 0x7E020000  # CLONE_NEWUSER | NEWPID | NEWNET | NEWIPC | NEWUTS | NEWCGROUP | NEWNS
_AF_UNIX = 1

_LD, _JEQ, _JGE, _JSET, _RET = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL = 0x7FFF0000, 0x80000000
_NR, _ARCH_OFFSET, _ARG0 = 0, 4, 16


def _errno(number: int) -> int:
    return 0x00050000 | number


def supported() -> bool:
    return platform.machine() in _ARCH


def program(loopback: bool = False, placed: bool = False, unix: bool = True) -> bytes:
    """Returns the filter as an array of `struct sock_filter`, the format that `bwrap --seccomp` and `prctl` accept. `loopback` allows sockets of all
    families, for a profiler that uses TCP internally in a network namespace that has only its own loopback. It also allows setting affinity and
    priority, because nothing is timed in that case. `placed` means that the judge binds the party to processors. Otherwise, the party can do so
    itself, as OpenMP may do with its threads. `unix` allows opening named sockets, which is safe if namespaces hide all socket names. Socket
    pairs are always allowed."""
    machine = platform.machine()
    column = 0 if machine == "x86_64" else 1
    code: list[tuple[int, int, int, int]] = [
        (_LD, 0, 0, _ARCH_OFFSET),
        (_JEQ, 1, 0, _ARCH[machine]),
        (_RET, 0, 0, _KILL),
        (_LD, 0, 0, _NR),
    ]
    if machine == "x86_64":
        code += [(_JGE, 0, 1, 0x40000000), (_RET, 0, 0, _errno(errno.ENOSYS))]  # the x32 system-call numbers would bypass the filter
    for numbers in _DENIED.values():
        number = numbers[column]
        if number is not None:
            code += [(_JEQ, 0, 1, number), (_RET, 0, 0, _errno(errno.EPERM))]
    ignored = [] if loopback else [*_PRIORITY.values(), *([_AFFINITY] if placed else [])]
    for numbers in ignored:
        code += [(_JEQ, 0, 1, numbers[column]), (_RET, 0, 0, _IGNORED)]
    # glibc falls back to clone, whose flags a filter can read; clone3 passes its flags through a pointer.
    code += [(_JEQ, 0, 1, _CLONE3[column]), (_RET, 0, 0, _errno(errno.ENOSYS))]
    if not loopback and not unix:
        code += [(_JEQ, 0, 1, _SOCKET[column]), (_RET, 0, 0, _errno(errno.EPERM))]
    elif not loopback:
        code += [(_JEQ, 0, 4, _SOCKET[column]), (_LD, 0, 0, _ARG0), (_JEQ, 1, 0, _AF_UNIX), (_RET, 0, 0, _errno(errno.EPERM)), (_RET, 0, 0, _ALLOW)]
    code += [
        (_JEQ, 0, 4, _CLONE[column]),
        (_LD, 0, 0, _ARG0),
        (_JSET, 0, 1, _NEW_NAMESPACES),
        (_RET, 0, 0, _errno(errno.EPERM)),
        (_RET, 0, 0, _ALLOW),
    ]
    code.append((_RET, 0, 0, _ALLOW))
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in code)


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


def install(placed: bool = False) -> None:
    """Permanently confines the calling process (used if bubblewrap is not available). Raises `OSError`."""
    libc = ctypes.CDLL(None, use_errno=True)
    code = program(placed=placed, unix=False)  # the host's sockets are visible, including the database's
    buffer = ctypes.create_string_buffer(code, len(code))
    descriptor = _Program(len(code) // 8, ctypes.addressof(buffer))
    if libc.prctl(38, 1, 0, 0, 0) != 0:  # PR_SET_NO_NEW_PRIVS
        raise OSError(ctypes.get_errno(), "no_new_privs")
    if libc.prctl(22, 2, ctypes.byref(descriptor), 0, 0) != 0:  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER
        raise OSError(ctypes.get_errno(), "seccomp")
