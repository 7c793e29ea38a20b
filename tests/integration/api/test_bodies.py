"""Maximum request sizes by sender, on a real Daphne, which responds before the body has been sent."""

from __future__ import annotations

import json
import socket
from urllib.parse import urlsplit

import httpx
import pytest
from django.urls import reverse

from webapp.accounts.models import SignInLink

MIB = 1 << 20


def session_cookie(server: str) -> str:
    """Returns the name of the installation's session cookie, which contains its port."""
    return f"stitchwork_session_{urlsplit(server).port}"


def told(server: str, headers: dict[str, str], pieces: list[bytes] = [], path: str = "/api/v1/tasks") -> tuple[int, dict]:  # noqa: B006 - never changed
    """Returns the status and the problem for a request whose body never ends."""
    address = urlsplit(server)
    with socket.create_connection((address.hostname, address.port), timeout=20) as sock:
        lines = {"Host": address.netloc, "Content-Type": "application/json", **headers}
        sock.sendall(f"POST {path} HTTP/1.1\r\n".encode() + b"".join(f"{k}: {v}\r\n".encode() for k, v in lines.items()) + b"\r\n")
        try:
            for piece in pieces:
                sock.sendall(piece)
        except OSError:
            pass  # the server has closed the connection
        answer = b""
        while b"\r\n\r\n" not in answer or len(answer.partition(b"\r\n\r\n")[2]) < 20:
            part = sock.recv(65536)
            if not part:
                break
            answer += part
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body or b"{}")


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer invented"}, {"Cookie": "{session}=invented"}, {"Cookie": '"=;;,'}])
def test_nobody_sends_more_than_a_megabyte(server, transactional_db, headers):
    headers = {name: value.replace("{session}", session_cookie(server)) for name, value in headers.items()}
    status, problem = told(server, {"Content-Length": str(2 * MIB), **headers})
    assert status == 413 and problem["detail"] == "The request is larger than 1 MiB."
    assert problem["hint"] == "Sign in, or send a token, for a request of more than 1 MiB."


def test_nor_without_saying_how_much_comes(server, transactional_db):
    piece = f"{65536:x}\r\n".encode() + b"x" * 65536 + b"\r\n"
    status, problem = told(server, {"Transfer-Encoding": "chunked"}, [piece] * 17)
    assert status == 413 and problem["detail"] == "The request is larger than 1 MiB."


def test_what_is_less_is_read(server, transactional_db):
    answer = httpx.post(f"{server}/api/v1/tasks", content=b"x" * (MIB - 10), headers={"Content-Type": "application/json"})
    assert answer.status_code == 401


def test_who_has_a_token_or_a_session_sends_more(server, people, token):
    source = {"source": "#" * (2 * MIB), "name": "t"}
    answer = httpx.post(f"{server}/api/v1/tasks", json=source, headers={"Authorization": f"Bearer {token}"}, timeout=30)
    assert answer.status_code == 422 and "at most 524288 characters" in answer.text
    with httpx.Client(base_url=server, timeout=30) as browser:
        browser.get(reverse("accounts:sign_in_link", args=[SignInLink.issue(people.alice)]))
        cookie = {session_cookie(server): browser.cookies[session_cookie(server)]}
    answer = httpx.post(f"{server}/submit/check", data={"kind": "task", "source": "#" * (2 * MIB)}, cookies=cookie, timeout=30)
    assert answer.status_code == 403  # the form's own token is missing, which shows that the body has been read


def test_and_never_more_than_a_zip(server, token):
    status, problem = told(server, {"Content-Length": str(1 << 40), "Authorization": f"Bearer {token}"})
    assert status == 413 and problem["detail"] == "The request is larger than 48 MiB." and "a zip of tasks 48 MiB" in problem["hint"]
