"""`python -m verifier prepare`: creates what a host needs once, before its first build."""

from __future__ import annotations

import compileall
import sys
from pathlib import Path

from verifier.build.headers import USUAL, Headers
from verifier.confinement.probe import NoSandbox, required
from verifier.devices.base import DeviceError
from verifier.devices.opening import open_device
from verifier.judge.party_failure import PartyFailure
from verifier.judge.pool import Pool
from verifier.limits import Limits
from verifier.startup.bytecode import make


def main(device_name: str, data_dir: Path, plain: bool = False) -> int:
    """Prepares the host. Returns 0 if everything is in place; otherwise, prints the reason and returns 2."""
    data_dir.mkdir(parents=True, exist_ok=True)
    # Parties and judges cannot write byte code, so they would compile this package at each start.
    compileall.compile_dir(Path(__file__).parents[1], quiet=2)
    try:
        device = open_device(device_name, data_dir, later=True)  # compilers do not need an open device
    except (DeviceError, ImportError) as error:
        print(error, file=sys.stderr)
        return 2
    headers = Headers(data_dir)
    try:
        required()
    except NoSandbox as error:
        print(error, file=sys.stderr)
        return 2
    pool = Pool(device, Limits(), spares=0, builder_binds=[headers.bind])
    try:
        print(make(data_dir))
        for made in headers.prepare(pool, ([],) if plain else USUAL):
            print(f"a precompiled header of {made.nbytes >> 20} MiB, in {made.seconds:.1f} s of the compiler")
    except PartyFailure as failure:
        print(f"no precompiled header: {failure.message} {failure.detail[-1000:]}".strip(), file=sys.stderr)
        return 2
    finally:
        pool.close()
    print(f"{headers.count()} precompiled header(s) for the bindings of extensions")
    return 0
