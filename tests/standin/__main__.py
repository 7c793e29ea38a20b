"""`python -m tests.standin`: the stand-in as a separate server."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from contextlib import suppress

from tests.standin import CONTENT, KINDS, TRANSPORT, FaultPlan, StandIn

PROFILE = """# A profile for it:
[profiles.stand-in]
kind = "openai"
base_url = "{base_url}"
model = "stand-in"
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.standin", description="A local model server that answers with the built-in compiler.")
    parser.add_argument("--port", type=int, default=8099, help="0: any free one (default: 8099)")
    parser.add_argument("--seed", type=int, default=0, help="of the faults")
    parser.add_argument("--faults", type=float, default=0.0, metavar="RATE", help="share of answers that are faulty, 0 to 1 (default: 0)")
    parser.add_argument("--kinds", nargs="+", choices=[*KINDS, "transport", "content"], default=list(KINDS), help="faults to choose from")
    parser.add_argument("--seconds", type=float, default=0.0, help="that each answer takes (default: as long as it takes)")
    parser.add_argument("--hang", type=float, default=60.0, help="seconds that a hanging answer is held (default: 60)")
    arguments = parser.parse_args()
    if not 0 <= arguments.faults <= 1:
        parser.error("--faults is a share between 0 and 1")
    groups = {"transport": TRANSPORT, "content": CONTENT}
    kinds = [kind for name in arguments.kinds for kind in groups.get(name, (name,))]
    plan = FaultPlan(arguments.seed, arguments.faults, kinds)
    with suppress(KeyboardInterrupt):
        asyncio.run(serve(plan, arguments))
    return 0


async def serve(plan: FaultPlan, arguments: argparse.Namespace) -> None:
    def show(entry: dict) -> None:
        print(json.dumps(entry), flush=True)

    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with StandIn(plan, port=arguments.port, seconds=arguments.seconds, hang=arguments.hang, on_request=show) as server:
        print(f"ready: {server.base_url}", flush=True)
        print(PROFILE.format(base_url=server.base_url), file=sys.stderr, flush=True)
        await stopped.wait()


if __name__ == "__main__":
    sys.exit(main())
