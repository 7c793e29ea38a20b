"""Describes what confines a party on this host, layer by layer, for reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verifier.confinement import cgroup, landlock, seccomp
from verifier.confinement.probe import probe

if TYPE_CHECKING:  # the first parties of a judge are started before it has pydantic
    from verifier.report import Protection

_failed: dict[str, str] = {}  # layers that this host offers but that a party failed to apply, with the error


def layer_failed(layer: str, error: str) -> None:
    """Records that a party could not apply a layer, which it says before any stranger's source runs in it. Reports list the layer as missing from
    then on."""
    _failed[layer] = error[:200]


def protection() -> Protection:
    """Returns what confines a party on this host."""
    from verifier.report import Protection

    layers: list[str] = []
    missing: list[str] = []
    wrapped = bool(probe().path)
    if wrapped:
        layers += ["user, mount, pid, ipc, uts and network namespaces", "read-only minimal file system", "private /tmp", "no capabilities"]
    else:
        missing += [f"namespaces (files and processes of this user can be seen): {probe().why}"]
        layers += ["own session"]
    layers += ["cleared environment"]
    (layers if seccomp.supported() else missing).append("seccomp" if seccomp.supported() else "seccomp: this processor architecture has no filter")
    if not landlock.supported():
        missing.append(landlock.lack())
    elif "landlock" in _failed:
        missing.append(f"Landlock: the kernel has it, and refused the rules ({_failed['landlock']})")
    else:
        layers.append(landlock.layer())
    kind = cgroup.version()
    (layers if kind else missing).append(cgroup.layer() if kind else cgroup.lack())
    layers += ["rlimits", *([] if kind else ["memory and processes counted by the judge"]), "time limits"]
    return Protection(sandbox="bubblewrap" if wrapped else "process", layers=layers, missing=missing)
