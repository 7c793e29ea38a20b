"""Runs the environment's server in a thread, with verifiers that the caller chooses."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import uvicorn

from agents.rl.environment import Conditions, Environment, Problem
from agents.rl.pool import Pool
from agents.rl.server import Server


@contextmanager
def serving(problems: Sequence[Problem], clients: Sequence, turns: int = 1) -> Iterator[str]:
    """Yields the server's URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    app = Server(Environment(problems, Pool(clients, 64), Conditions(turns=turns))).app()
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started and thread.is_alive():
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(30)
