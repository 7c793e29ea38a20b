"""Checks answers against the OpenAPI document."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any

from django.http import HttpResponse
from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from webapp.api.views import document as text_of_document

BASE = "urn:openapi"


@lru_cache(maxsize=1)
def document() -> dict[str, Any]:
    return json.loads(text_of_document())


@lru_cache(maxsize=1)
def _registry() -> Registry:
    return Registry().with_resource(BASE, Resource.from_contents(document(), default_specification=DRAFT202012))


def operations() -> list[tuple[str, str, dict[str, Any]]]:
    """Yields (method, path, operation)."""
    return [(method, path, operation) for path, methods in document()["paths"].items() for method, operation in methods.items()]


def operation_at(method: str, path: str) -> dict[str, Any]:
    """Returns the operation to which an address belongs: an operation without parameters takes precedence over one with parameters."""
    for template in sorted(document()["paths"], key=lambda template: template.count("{")):
        if method.lower() in document()["paths"][template] and re.fullmatch(re.sub(r"{\w+}", "[^/]+", template), path):
            return document()["paths"][template][method.lower()]
    raise AssertionError(f"{method} {path} is not in the document")


def judge(method: str, path: str, answer: HttpResponse) -> dict[str, Any] | None:
    """Fails unless the document allows the answer's status, media type and every field. Returns the answer's JSON."""
    operation = operation_at(method, path)
    status, media_type = str(answer.status_code), answer.headers["Content-Type"].partition(";")[0]
    assert status in operation["responses"], f"{method} {path} answers {status}, which its description does not have: {answer.content[:300]!r}"
    content = operation["responses"][status].get("content", {})
    assert media_type in content, f"{method} {path} {status} is {media_type}, described are {list(content)}"
    if not media_type.endswith("json"):
        return None
    body = json.loads(answer.content)
    schema = content[media_type]["schema"]
    errors = [f"{list(e.absolute_path)}: {e.message[:200]}" for e in Draft202012Validator(_absolute(schema), registry=_registry()).iter_errors(body)]
    assert not errors, f"{method} {path} {status}: {errors[:5]}"
    return body


def _absolute(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {key: f"{BASE}{value}" if key == "$ref" else _absolute(value) for key, value in schema.items()}
    return [_absolute(part) for part in schema] if isinstance(schema, list) else schema
