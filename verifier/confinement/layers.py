"""Describes each layer that confines a party on this host, for reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verifier.confinement import cgroup, landlock, seccomp
from verifier.confinement.probe import probe

if TYPE_CHECKING:  # a judge starts its first parties before it has imported pydantic
    from verifier.report import Protection

_failed: dict[str, str] = {}  # layers that this host supports but that a party failed to apply, with the error


def layer_failed(layer: str, error: str) -> None:
    """Records that a party could not apply a layer. The party reports this before it runs any untrusted source. From then on, reports list the layer
    as missing."""
    _failed[layer] = error[:200]


def protection() -> Protection:
    """Returns the layers that confine a party on this host."""
    from verifier.report import Protection  # parties import this module too, and start without pydantic

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
        missing.append(f"Landlock: the kernel supports it but refused the rules ({_failed['landlock']})")
    else:
        layers.append(landlock.layer())
    kind = cgroup.version()
    (layers if kind else missing).append(cgroup.layer() if kind else cgroup.lack())
    layers += ["rlimits", *([] if kind else ["memory and processes counted by the judge"]), "time limits"]
    return Protection(sandbox="bubblewrap" if wrapped else "process", layers=layers, missing=missing)
