"""OpenEnv's messages, over HTTP and WebSocket, and how a trainer's client handles them."""

from __future__ import annotations

import json
import time

import httpx
import pytest

from agents.rl.bridges import trl_environment, trl_reward, trl_rows, write_harbor
from agents.rl.client import EnvironmentClient, RequestRefused
from agents.rl.environment import Conditions, Environment, Problem, problems_in
from agents.rl.pool import Pool
from tests.unit.rl.rl_reports import failed
from tests.unit.rl.rl_verifier import TASK, FakeVerifier, program

pytest.importorskip("starlette")
from starlette.testclient import TestClient  # noqa: E402

from agents.rl.server import EPISODE_SECONDS, Server  # noqa: E402


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def served():
    def make(waiting: int = 8, token: str | None = None, verifiers: int = 1, turns: int = 1) -> TestClient:
        environment = Environment(problems_in({"a": TASK}), Pool([FakeVerifier() for _ in range(verifiers)], waiting), Conditions(turns=turns))
        server = Server(environment, token, Clock())
        client = TestClient(server.app())
        client.server = server
        return client

    return make


def test_an_episode_over_http(served):
    with served() as client:
        begun = client.post("/reset", json={"seed": 3, "episode_id": "mine", "render": True}).json()
        assert begun["observation"]["episode_id"] == "mine" and begun["reward"] is None and begun["done"] is False
        step = client.post("/step", json={"episode_id": "mine", "action": {"program": program(low=1.5)}, "timeout_s": 30}).json()
        assert step["reward"] > 0 and step["done"] is True and step["observation"]["rubric"]["anti_hacking"] == 5
        assert client.get("/state", params={"episode_id": "mine"}).json()["step_count"] == 1
        assert client.get("/health").json()["done"] == 1
        assert client.get("/metadata").json()["name"] == "stitchwork" and "program" in str(client.get("/schema").json()["action"])
    assert client.server.environment.pool.clients[0].closed


def test_an_episode_over_a_websocket(served):
    with served(turns=2) as client, client.websocket_connect("/ws") as socket:

        def ask(message: object) -> dict:
            socket.send_text(message if isinstance(message, str) else json.dumps(message))
            return socket.receive_json()

        assert ask({"type": "step", "data": {"program": "x"}})["data"]["code"] == "SESSION_ERROR"
        assert ask({"type": "reset", "data": {"seed": 1}})["data"]["done"] is False
        assert ask({"type": "step", "data": {"program": program(status="crashed")}})["data"]["reward"] == 0
        assert ask({"type": "step", "data": {"reply": f"```python\n{program(low=1.2)}```"}})["data"]["reward"] > 0
        assert ask({"type": "state"})["data"]["step_count"] == 2
        assert ask({"type": "step", "data": {"program": "x"}})["data"]["code"] == "EXECUTION_ERROR"
        assert ask({"type": "dance"})["data"]["code"] == "UNKNOWN_TYPE"
        assert ask("{")["data"]["code"] == ask("[]")["data"]["code"] == "INVALID_JSON"
        assert ask({"type": "step", "data": {"unknown": 1}})["data"]["code"] == "VALIDATION_ERROR"


def test_who_hangs_up_ends_the_verification(served):
    with served() as client:
        verifier = client.server.environment.pool.clients[0]
        with client.websocket_connect("/ws") as socket:
            socket.send_json({"type": "reset"})
            socket.receive_json()
            socket.send_json({"type": "step", "data": {"program": program(wait=1)}})
            until(lambda: verifier.at_work == 1)
        until(lambda: verifier.cancelled == 1 and client.server.sessions == 0)


def until(true) -> None:
    for _ in range(500):
        if true():
            return
        time.sleep(0.01)
    raise AssertionError("it did not come to that")


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        ("/step", {"episode_id": "none", "action": {"program": "x"}}, "no such episode"),
        ("/step", {"episode_id": "none"}, "action"),
        ("/reset", {"problem": "none"}, "no problem"),
        ("/reset", {"seed": -1}, "seed"),
        ("/score", {"items": [{"task": TASK, "program": "x", "skill": "improve"}]}, "before"),
        ("/score", {"items": [{"task": TASK}]}, "program"),
    ],
)
def test_errors_say_what_is_wrong(served, path, body, says):
    with served() as client:
        answer = client.post(path, json=body)
        assert answer.status_code == 422 and says in answer.json()["error"]


def test_a_batch_is_scored_in_its_order_and_what_finds_no_place_says_so(served):
    items = [{"task": TASK, "program": program(low=1 + n / 10)} for n in range(6)]
    with served(verifiers=2, waiting=10) as client:
        scores = client.post("/score", json={"items": [*items, {"task": TASK, "program": "x"}]}).json()["scores"]
        assert [one.get("low") for one in scores] == [1 + n / 10 for n in range(6)] + [None] and scores[-1]["gate"] == "rejected"
    with served(waiting=0) as client:
        scores = client.post("/score", json={"items": items}).json()["scores"]
        assert [one.get("no_sample") for one in scores].count("full") == 5


def test_only_who_has_the_token(served):
    with served(token="secret") as client:
        assert client.post("/reset", json={}).status_code == 401
        assert client.post("/reset", json={}, headers={"Authorization": "Bearer secret"}).status_code == 200
        with pytest.raises(Exception), client.websocket_connect("/ws") as socket:  # noqa: B017, PT011
            socket.receive_json()


def test_episodes_that_nobody_goes_on_with_are_forgotten(served):
    with served() as client:
        client.post("/reset", json={"episode_id": "old"})
        client.server.clock.now = EPISODE_SECONDS + 1
        client.post("/reset", json={"episode_id": "new"})
        assert list(client.server.episodes) == ["new"]


class Through(httpx.BaseTransport):
    """Passes the client's requests to the application; the first `full` of them are answered with a 503."""

    def __init__(self, client: TestClient, full: int = 0):
        self.client, self.full = client, full

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if self.full:
            self.full -= 1
            return httpx.Response(503, headers={"Retry-After": "3"}, json={"error": "full"})
        answer = self.client.request(request.method, request.url.path, content=request.read(), headers={"content-type": "application/json"})
        return httpx.Response(answer.status_code, content=answer.content)


def connected(client: TestClient, full: int = 0, slept: list | None = None, patience: float = 100) -> EnvironmentClient:
    return EnvironmentClient("http://test", transport=Through(client, full), sleep=(slept if slept is not None else []).append, patience=patience)


def test_the_client_is_patient_but_not_for_ever(served):
    slept: list[float] = []
    with served() as client:
        found = connected(client, full=2, slept=slept)
        assert found.reset()["problem"] == "a" and slept == [3.0, 3.0]
        with pytest.raises(RequestRefused, match="full for"):
            connected(client, full=99, patience=10).reset()
        with pytest.raises(RequestRefused, match="no problem"):
            found.reset(problem="none")
    with served(waiting=0) as client:
        scores = connected(client, slept=slept).score([{"task": TASK, "program": program(low=1 + n)} for n in range(4)])
        assert [one["low"] for one in scores] == [1, 2, 3, 4]
    with pytest.raises(RequestRefused, match="does not answer"):
        EnvironmentClient("http://127.0.0.1:9").reset()


def test_trl_sees_a_tool_and_a_reward(served):
    with served(turns=2) as client:
        made = trl_environment("http://test", connect=lambda address, token: connected(client))()
        assert TASK.strip() in made.reset(problem="a", prompt="ignored") and made.get_reward() == 0.0
        assert "crashed" in made.submit_program(program(status="crashed"))
        assert made.submit_program(program(low=2.0)).startswith("passed") and made.get_reward() > 1
        with pytest.raises(ValueError, match="over"):
            made.submit_program("x")
        made.reset()
        made.submit_program(program(status="died"))
        assert made.get_reward() is None
        tools = [name for name in dir(made) if not name.startswith("_")]
        assert tools == ["get_reward", "reset", "submit_program"] and "Args:" in made.submit_program.__doc__


def test_trl_rows_and_reward_function(served):
    wrong = {**failed("wrong_result")}
    problems = [Problem(id="w", task=TASK), Problem(id="r", task=TASK, skill="improve", before=program(), report=wrong, feedback="off")]
    rows = trl_rows(problems)
    logged: list[dict] = []
    with served() as client:
        reward = trl_reward(connected(client), logged.append)
        replies = [f"```python\n{program(low=1.5)}```", [{"role": "assistant", "content": program(status="died")}]]
        found = reward(replies, **{name: [row[name] for row in rows] for name in ("task", "skill", "before")}, prompts=["", ""])
    assert found[0] > 1 and found[1] is None and logged[1]["no_sample"] == "infrastructure" and logged[0]["skill"] == "write"


def test_harbor_folders(tmp_path):
    assert write_harbor(problems_in({"examples/rms_norm.py": TASK, "b": TASK}), tmp_path) == 2
    place = tmp_path / "examples-rms-norm-py"
    assert (place / "tests" / "task.py").read_text() == TASK and (place / "tests" / "test.sh").stat().st_mode & 0o111
    import tomllib

    assert tomllib.loads((place / "task.toml").read_text())["metadata"]["name"] == "examples-rms-norm-py"
    compile((place / "tests" / "ask.py").read_text(), "ask.py", "exec")
