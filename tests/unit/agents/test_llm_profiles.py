"""The profiles file: what it may contain, and the messages for its errors."""

from __future__ import annotations

import pytest
from llm_profiles import models, profile

from agents.llm import Models, open_models
from agents.llm.messages import Usage
from agents.llm.profiles import Prices, ProfilesUnusable, key_variables, profiles_file, read_profiles

GOOD = """
[profiles.fast]
kind = "openai"
base_url = "https://api.example.com/v1/"
model = "some-model"
api_key_env = "EXAMPLE_API_KEY"
temperature = 0.2
max_tokens = 8192
context_tokens = 128000
prices = { input = 1.25, cached_input = 0.125, output = 10.0 }

[profiles.fast.limits]
concurrency = 4
requests_per_minute = 60

[profiles.fast.body]
reasoning_effort = "high"

[profiles.thinker]
kind = "anthropic"
base_url = "https://api.example.org/v1"
model = "another"
api_key_env = "OTHER_KEY"
body = { thinking = { type = "enabled", budget_tokens = 8000 } }

[profiles.somebody]
kind = "mailbox"

[profiles.again]
kind = "cassette"
file = "tape.jsonl"
record = "fast"
"""


def refused(tmp_path, text: str | bytes) -> str:
    path = tmp_path / "llm.toml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(ProfilesUnusable) as error:
        read_profiles(path)
    assert str(error.value).startswith(str(path))
    return str(error.value)


def test_a_file_with_all_kinds(tmp_path):
    (tmp_path / "llm.toml").write_text(GOOD)
    found = read_profiles(tmp_path / "llm.toml")
    assert [p.kind for p in found.values()] == ["openai", "anthropic", "mailbox", "cassette"]
    fast = found["fast"]
    assert fast.base_url == "https://api.example.com/v1" and fast.limits.concurrency == 4 and fast.limits.retries == 5
    assert fast.body == {"reasoning_effort": "high"}


def test_cost():
    prices = Prices(input=1.0, cached_input=0.1, cache_write=1.25, output=10.0)
    usage = Usage(input_tokens=1_000_000, cached_tokens=400_000, cache_written_tokens=200_000, output_tokens=100_000)
    assert prices.dollars(usage) == pytest.approx(0.4 + 0.04 + 0.25 + 1.0)
    assert Prices(input=1.0, output=10.0).dollars(usage) == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("[profiles.fast]\nkind = openai\n", ["not TOML", "line 2"]),
        ("[profiles.fast]\nkind = 'open'\n", ["[profiles.fast], key kind", "'open'", "'openai', 'anthropic', 'mailbox', 'cassette'"]),
        ("[profiles.fast]\nmodel = 'x'\n", ["[profiles.fast], key kind: it is missing"]),
        ("[profiles.fast]\nkind = 'openai'\nmodel = 'x'\n", ["[profiles.fast], key base_url: it is missing; add base_url = ..."]),
        ("[profiles.a]\nkind='openai'\nmodel='x'\nbase_url='http://h'\nconcurency=1\n", ["key concurency: there is no such key"]),
        ("[profiles.a]\nkind='openai'\nmodel='x'\nbase_url='http://h'\ntemprature=1\n", ["did you mean temperature?"]),
        (
            "[profiles.a]\nkind='openai'\nmodel='x'\nbase_url='http://h'\nlimits={retrys=1}\n",
            ["[profiles.a.limits], key retrys", "did you mean retries?"],
        ),
        ("[profiles.a]\nkind='openai'\nmodel='x'\nbase_url='http://h'\nlimits={retries=-1}\n", ["[profiles.a.limits], key retries", "(it is -1)"]),
        ("[profiles.a]\nkind='openai'\nmodel='x'\nbase_url='h/v1'\n", ["key base_url: it must begin with http"]),
        ("[profiles.a]\nkind='openai'\nmodel='x'\nbase_url='http://h/v1/chat/completions'\n", ["leave that part out"]),
        ("[profiles.a]\nkind='openai'\nmodel='x'\nbase_url='http://h'\nbody={messages=[]}\n", ["key body: it may not contain messages"]),
        ("[profiles.built-in]\nkind='mailbox'\n", ["[profiles.built-in]", "choose another"]),
        ("[profiles.'a b']\nkind='mailbox'\n", ["[profiles.a b]", "letters, digits"]),
        ("[profiles.a]\nkind='cassette'\nfile='x'\nrecord='b'\n", ["[profiles.a], key record: 'b' is not another profile"]),
        ("[models.a]\nkind='mailbox'\n", ["[models]: there is no such table", "[profiles.NAME]"]),
        ("profiles = 3\n", ["it must be a table"]),
        (b"[profiles.a]\nkind = '\xff'\n", ["byte 22 is not UTF-8"]),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path, text, parts):
    said = refused(tmp_path, text)
    for part in parts:
        assert part in said


def test_all_problems_are_said_at_once(tmp_path):
    said = refused(tmp_path, "[profiles.a]\nkind='openai'\n[profiles.b]\nkind='cassette'\n")
    assert "[profiles.a], key base_url" in said and "[profiles.a], key model" in said and "[profiles.b], key file" in said


@pytest.mark.parametrize(
    "line",
    [
        "api_key = 'sk-planted-123456'",
        "key = 'sk-planted-123456'",
        "api_key_env = 'sk-planted-123456'",
        "base_url = 'https://u:sk-planted-123456@h/v1'",
    ],
)
def test_a_key_in_the_file_is_refused_and_not_repeated(tmp_path, line):
    address = "" if line.startswith("base_url") else "base_url='https://h/v1'\n"
    said = refused(tmp_path, f"[profiles.a]\nkind='openai'\nmodel='x'\n{address}{line}\n")
    assert "environment variable" in said and "sk-planted" not in said


def test_where_the_file_is(tmp_path):
    assert profiles_file({"DATA_DIR": str(tmp_path)}) is None
    (tmp_path / "llm.toml").touch()
    assert profiles_file({"DATA_DIR": str(tmp_path)}) == tmp_path / "llm.toml"
    assert profiles_file({"DATA_DIR": str(tmp_path), "STITCHWORK_LLM_PROFILES": "/else/where.toml"}).name == "where.toml"


def test_a_missing_or_unreadable_file_is_a_problem_and_no_exception(tmp_path):
    missing = open_models({"DATA_DIR": str(tmp_path), "STITCHWORK_LLM_PROFILES": str(tmp_path / "no.toml")})
    assert not missing.known("fast") and "there is no such file" in missing.problem
    folder = open_models({"STITCHWORK_LLM_PROFILES": str(tmp_path)})
    assert not folder.profiles() and "cannot be read" in folder.problem


def test_a_mended_file_is_read_again(tmp_path):
    found: Models = models(tmp_path, "[profiles.fast\n")
    assert not found.known("fast") and found.problem
    (tmp_path / "llm.toml").write_text(profile("fast", base_url="http://h/v1"))
    assert found.known("fast") and not found.problem
    (tmp_path / "llm.toml").write_text(profile("faster", base_url="http://h/v1"))
    assert not found.known("fast") and found.known("faster")


def test_the_variables_that_hold_keys_are_known_even_of_a_file_with_problems(tmp_path):
    here = {"DATA_DIR": str(tmp_path)}
    assert key_variables(here) == frozenset()
    (tmp_path / "llm.toml").write_text(GOOD + "[profiles.bad]\napi_key_env = 'THIRD'\n[profiles.worse]\napi_key_env = 3\n")
    assert key_variables(here) == {"EXAMPLE_API_KEY", "OTHER_KEY", "THIRD"}
    (tmp_path / "llm.toml").write_text("profiles = [")
    assert key_variables(here) == frozenset()
