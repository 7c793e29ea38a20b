"""`python -m webapp.supervisor`, the command behind `make run`."""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import sys
from pathlib import Path

from verifier.confinement.probe import CHOICE
from webapp.environment import data_dir
from webapp.supervisor.children import PR_SET_PDEATHSIG
from webapp.supervisor.postgres import PostgresError
from webapp.supervisor.stack import Stack, StackError


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m webapp.supervisor", description="Run all of Stitchwork on this machine until Ctrl-C.")
    parser.add_argument("--port", type=int, default=int(os.environ.get("PORT") or 8000))
    parser.add_argument("--host", default=os.environ.get("HOST_INTERFACE") or "127.0.0.1", help="address to listen on (default 127.0.0.1)")
    parser.add_argument("--data-dir", type=Path, default=None, help="default: $DATA_DIR, else .data")
    parser.add_argument("--only", nargs="+", choices=["web", "orchestrator", "verifier"], default=["web", "orchestrator", "verifier"])
    parser.add_argument("--debug", action="store_true", help="reload code, serve static files from their folders, show tracebacks")
    parser.add_argument("--no-sandbox", action="store_true", help="for sources that you trust, one account, on loopback (the same as SANDBOX=none)")
    arguments = parser.parse_args()
    if arguments.no_sandbox:
        os.environ[CHOICE] = "none"
    if os.environ.get("STITCHWORK_DIE_WITH_PARENT") == "1":  # in case `make` is killed and cannot notify us
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    data = (arguments.data_dir or data_dir()).expanduser().absolute()
    stack = Stack(data, port=arguments.port, host=arguments.host, only=arguments.only, debug=arguments.debug)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stack.request_stop)
    try:
        stack.run()
    except (StackError, PostgresError) as error:
        print(f"stitchwork: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
