"""Entry point of every confined process. The process imports torch, waits until the judge assigns it a role, and is never reused for a second one."""

# sandboxed: its roles import and run tasks and programs

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import json
import os
import resource
import signal
import socket
import sys
from typing import Any

from verifier.channel import MAX_ARTEFACTS, Channel, ChannelClosed, Frame
from verifier.parties.describing import describe
from verifier.parties.permit import Permit

# Imports within functions: a party is confined before it imports torch, and a role loads only what it needs.


def main(argument: str) -> None:
    boot = json.loads(argument)
    sys.path += boot["path"]
    failed = confine(boot)
    os.chdir(boot["home"])
    channel = Channel(socket.socket(fileno=boot["fd"]), accept_fds=True)
    faulthandler.enable()
    permit = None if boot["permit"] is None else Permit(boot["permit"])
    early = begin_device(boot["early"])
    if boot["torch"]:
        import_all(boot["extensions"])
    grow_heap(boot["heap"])

    channel.send({"type": "ready", **({"landlock_failed": failed} if failed else {})})
    with contextlib.suppress(ChannelClosed):
        serve(channel, boot["home"], early, permit)
    # Not sys.exit: threads and exit handlers of untrusted code must not delay the end of a party.
    sys.stdout.flush()
    os._exit(0)


def begin_device(wanted: bool) -> Any:
    """Starts initialising the device concurrently with the import of torch; returns None if the device is not `wanted`."""
    if not wanted:
        return None
    from verifier.devices.cuda_early import Early

    return Early()


def import_all(extensions: bool) -> None:
    """Imports everything in advance so that a role starts without delay."""
    from verifier.startup.importing import swift_imports

    with swift_imports():
        import torch  # noqa: F401

        if extensions:
            import torch.utils.cpp_extension  # noqa: F401


def confine(boot: dict[str, Any]) -> str:
    """Applies limits to this process before it runs untrusted code or starts its first thread. If Landlock fails, returns the reason; the judge then
    lists Landlock as missing."""
    for name, value in boot["rlimits"].items():
        kind = getattr(resource, name)
        with contextlib.suppress(ValueError, OSError):
            hard = resource.getrlimit(kind)[1]
            value = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(kind, (value, value))
    if boot["parent"]:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
        if os.getppid() != boot["parent"]:
            os._exit(1)
    failed = ""
    if boot["landlock"] is not None:
        from verifier.confinement.landlock import restrict

        try:
            restrict(boot["landlock"])
        except OSError as error:
            failed = str(error)
    if boot["seccomp"]:
        from verifier.confinement.seccomp import install

        install(boot["placed"])
    return failed


def grow_heap(nbytes: int) -> None:
    """Touches `nbytes` of heap and frees them again. With trimming off, the pages stay mapped, so timed calls incur no page faults."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    libc.free.argtypes = [ctypes.c_void_p]
    piece = 16 << 20  # below the mmap threshold
    blocks = [libc.malloc(piece) for _ in range(nbytes // piece)]
    for block in filter(None, blocks):
        ctypes.memset(block, 1, piece)
    for block in blocks:
        libc.free(block)


def serve(channel: Channel, home: str, early: Any = None, permit: Permit | None = None) -> None:
    """Serves the judge. `permit`: the permit to use the device, needed once the role starts."""
    role: Any = None
    while True:
        frame = channel.receive(max_raw=MAX_ARTEFACTS)
        kind = frame.text("type")
        if kind == "exit":
            return
        # Python cannot interrupt a call that hangs, but a C thread can still report its current line.
        faulthandler.dump_traceback_later(max(float(frame.message.get("limit", 60)) * 0.85, 0.5), exit=False, file=2)
        try:
            if kind == "foresee" and role is None:
                from verifier.parties.capturing.foreseeing import foresee

                foresee(frame.text("source"))
                reply: dict[str, Any] | None = {"type": "ok"}
            elif role is None:
                if early is not None:
                    early.wait()
                if permit is not None:
                    permit.take()
                role = make_role(frame, channel, home, permit)
                reply = {"type": "ok"}
            else:
                reply = getattr(role, "do_" + kind)(frame)
        except ChannelClosed:
            raise
        except BaseException as error:  # also catches SystemExit and KeyboardInterrupt raised by untrusted code
            reply = {"type": "failed", **describe(error)}
        finally:
            faulthandler.cancel_dump_traceback_later()
        if reply is not None:
            raw = reply.pop("raw", b"")
            channel.send(reply, raw)


def make_role(frame: Frame, channel: Channel, home: str, permit: Permit | None = None) -> Any:
    name = frame.text("role")
    if name == "compiler":
        from verifier.build.compiler import Compiler

        return Compiler(channel, home)
    from verifier.devices.opening import party_device

    if name == "builder":
        from verifier.build.builder import Builder

        return Builder(channel, home)
    device = party_device(frame.message["device"])
    device.configure(frame.text("precision"))
    if permit is not None and name != "baseline":
        permit.close()  # a program never holds it
        permit = None
    if name == "runner":
        from verifier.parties.runner import Runner

        return Runner(channel, home, device, frame)
    from verifier.parties.reference import Reference, rehearse_kernels

    if name == "reference" and device.torch_device != "cpu":
        rehearse_kernels(device)
    return Reference(channel, home, device, frame, permit)
