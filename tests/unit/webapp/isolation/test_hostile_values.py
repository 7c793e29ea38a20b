"""Whatever an address, a form or a body contains, the answer is a readable message, never an internal error."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest
from django.urls import NoReverseMatch, reverse

from tests.browser.addresses import patterns
from tests.slowness import quick
from tests.unit.webapp.isolation import test_api_of_others as api_of_others
from tests.unit.webapp.isolation.tried import ask
from webapp.api.calls.limits import BUCKETS
from webapp.environment import ROOT

pytestmark = pytest.mark.django_db
PAGES = [p for p in patterns() if not p.name.startswith("api:")]
# A NUL, half a character, a number too large for any column, a digit that is not a decimal digit, and a malformed address.
VALUES = ["\0", "\udcff\ud800", "9" * 30, "²", "http://["]
READ = re.compile(r"(?:GET|POST|query|params)(?:\.get(?:list)?\(|\[)\s*[\"'](\w[\w-]*)[\"']")
FIELDS = re.compile(r"^    (\w+) = forms\.", re.MULTILINE)


@cache
def names() -> list[str]:
    """Returns every parameter that any view reads."""
    texts = [path.read_text() for path in (ROOT / "webapp").rglob("*.py")]
    found = {name for text in texts for name in [*READ.findall(text), *FIELDS.findall(text)]}
    assert len(found) > 30
    return sorted(found | {"q", "page", "sort", "login", "password", "code", "next"})


def sent(value: str) -> str:
    """Encodes a value as a client can send it: surrogates only as bytes that are not UTF-8."""
    return value.encode("utf-8", "surrogatepass").decode("latin-1") if "\ud800" in value else value


def failed(world: Any, method: str, value: str, who: str) -> dict[str, int]:
    found = {}
    user = world.people[who] if who else None
    for pattern in PAGES:
        if world.fills(pattern) is None:
            continue
        address = world.address(pattern)
        response = ask(user, method, address, dict.fromkeys(names(), sent(value)))
        if response.status_code >= 500:
            found[f"{method} {pattern.name or pattern.route}"] = response.status_code
    return found


@pytest.mark.slow
@pytest.mark.parametrize("value", quick(VALUES, 2), ids=[repr(value[:12]) for value in VALUES])
def test_parameters_and_forms(world, value):
    found = failed(world, "GET", value, "owner")
    if value in (VALUES[0], VALUES[-1]):  # forms are read in the same way
        found |= failed(world, "POST", value, "owner")
    assert not found


@pytest.mark.slow
def test_signed_out(world):
    values = ["\0", "http://["]
    assert not {key: status for value in values for method in ("GET", "POST") for key, status in failed(world, method, value, "").items()}


@pytest.mark.slow
def test_addresses(world):
    found = {}
    for pattern in PAGES:
        if world.fills(pattern) is None:
            continue
        for parameter in pattern.parameters:
            for value in ["9" * 30, "\0", "²", "a" * 3000, "%00", "-1"]:
                try:
                    address = world.address(pattern, **{parameter: value})
                except NoReverseMatch:
                    continue
                response = ask(world.people["owner"], "GET", address)
                if response.status_code >= 500:
                    found[f"{pattern.name} {parameter}={value[:9]!r}"] = response.status_code
    assert not found


@pytest.mark.slow
def test_bodies_of_the_api(world):
    token = world.token(world.people["owner"], world.team)
    found = {}
    for name, method, path in api_of_others.operations():
        known = api_of_others.bodies(world).get(name, {})
        address = api_of_others.address(world, path)
        tries: list[Any] = []
        if method == "GET":
            tries = [dict.fromkeys(names(), sent(value)) for value in VALUES[:5]]
        else:
            tries = [known | {key: value} for value in ("\0", "\ud800", 10**30, {}) for key in known]
            tries += ["", "null", "[" * 100_000, "\xff", '{"a": 1e999}', "9" * 6000, '{"\\u0000": 1}']
        for data in tries:
            BUCKETS.clear()
            response = ask(None, method, address, data, token=token, json=method != "GET")
            if response.status_code >= 500:
                found[f"{name} {data!r:.60}"] = response.status_code
    assert not found


def test_what_no_database_keeps_is_said(world):
    address = next(world.address(p) for p in PAGES if p.name == "runs:artefact").rpartition("/")[0]
    answer = ask(world.people["owner"], "GET", f"{address}/%00")
    assert answer.status_code in (400, 404)
    answer = ask(world.people["owner"], "GET", reverse("tasks:estimate"), dict.fromkeys(names(), "\0"))
    assert answer.status_code == 400 and "A value of this request cannot be stored. It contains a null character" in answer.body.decode()
