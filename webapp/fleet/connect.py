"""`python -m webapp.fleet.connect URL TOKEN` on a GPU host: fetches the database's address from the web application, and runs a verifier for each
GPU.

The response is stored. Without arguments, the command uses the stored response, so that a service on the host can start it. The command needs neither
Django's settings nor a database.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path

from webapp.environment import ROOT, data_dir, private_dir

ANSWER_BYTES = 10_000
SECONDS = 20


class ConnectRefused(RuntimeError):
    """Raised if this host cannot be connected. The message explains why, and what to do."""


def ask(base: str, token: str) -> dict[str, str]:
    """Sends this token to the web application at `base`. Returns `database_url` or `data_dir`."""
    request = urllib.request.Request(f"{base.rstrip('/')}/devices/enrol", data=json.dumps({"token": token}).encode(), method="POST")
    request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            said = json.loads(answer.read(ANSWER_BYTES))
    except urllib.error.HTTPError as error:
        raise ConnectRefused(_sentence(error)) from None
    except (OSError, ValueError) as error:
        raise ConnectRefused(f"{base} does not answer ({error}): is this the address that your browser shows, and does this host reach it?") from None
    if not isinstance(said, dict) or not {"database_url", "data_dir"} & said.keys():
        raise ConnectRefused(f"{base} is not a Stitchwork of this version")
    return said


def _sentence(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(error.read(ANSWER_BYTES))["error"])
    except (ValueError, KeyError, TypeError):
        return f"the pages answered {error.code}: is this the address that your browser shows?"


def kept(data: Path) -> Path:
    return data / "database" / "url"


def keep(data: Path, url: str) -> None:
    path = private_dir(private_dir(data) / "database") / "url"
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(url)


def command(said: dict[str, str], devices: str, data: Path) -> tuple[list[str], dict[str, str]]:
    """Returns the command to run and the environment variables to add. If the database is on the same machine, that machine already has a supervisor
    and does not need another."""
    if "data_dir" in said:
        if not Path(said["data_dir"]).is_dir():
            raise ConnectRefused("the database listens to the machine of the pages alone: docs/how-to/two-hosts.md says how to move it")
        device = devices.split()[0] if devices else "cuda:0"
        return [sys.executable, str(ROOT / "manage.py"), "verifier", "--device", device], {
            "DATA_DIR": said["data_dir"],
            "STITCHWORK_ROLE": "verifier",
        }
    more = {"DATABASE_URL": said["database_url"], "DATA_DIR": str(data)} | ({"STITCHWORK_DEVICES": devices} if devices else {})
    return [sys.executable, "-m", "webapp.supervisor", "--only", "verifier"], more


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m webapp.fleet.connect", description="Connect this host's GPUs to a Stitchwork.")
    parser.add_argument("url", nargs="?", help="address of the pages; left out: what was kept the last time")
    parser.add_argument("token", nargs="?", help="from the page “Connect a GPU”; valid for an hour")
    parser.add_argument("--device", action="append", default=[], help='such as "cuda:0", several times for several; default: the CPU and every GPU')
    given = parser.parse_args()
    data = data_dir()
    try:
        if given.url and given.token:
            said = ask(given.url, given.token)
            if "database_url" in said:
                keep(data, said["database_url"])
        elif kept(data).exists():
            said = {"database_url": kept(data).read_text().strip()}
        else:
            raise ConnectRefused("give the address of the pages and a token: both are in the command of the page “Connect a GPU”")
        line, more = command(said, " ".join(given.device), data)
    except ConnectRefused as error:
        print(f"stitchwork: {error}", file=sys.stderr)
        return 1
    os.chdir(ROOT)
    os.execve(line[0], line, os.environ | more)


if __name__ == "__main__":
    sys.exit(main())
