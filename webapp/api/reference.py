"""The OpenAPI document in the form that its page shows: each resource's operations with their fields and an example curl command."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

Document = dict[str, Any]


@dataclass(frozen=True)
class FieldRow:
    name: str
    place: str  # "path", "query" or "header"; "" for a field of a body
    type: str
    required: bool
    default: str
    description: SafeString
    pieces: list[tuple[str, str]] = field(default_factory=list)  # the type, split into parts: (text, name of the referenced object or "")


@dataclass(frozen=True)
class AnswerRow:
    status: str
    description: str
    schema: str  # name of the object that it refers to, or ""


@dataclass(frozen=True)
class OperationRow:
    id: str
    method: str
    path: str
    summary: str
    description: SafeString
    parameters: list[FieldRow]
    body: list[FieldRow]
    body_name: str
    answers: list[AnswerRow]
    curl: str


@dataclass(frozen=True)
class ObjectRow:
    name: str
    description: SafeString
    fields: list[FieldRow]


@dataclass(frozen=True)
class Section:
    name: str
    description: str
    operations: list[OperationRow]


@dataclass(frozen=True)
class Reference:
    title: str
    version: str
    description: list[SafeString]  # paragraphs
    base: str
    sections: list[Section] = field(default_factory=list)
    objects: list[ObjectRow] = field(default_factory=list)

    @classmethod
    def of(cls, document: Document, base: str) -> Reference:
        sections = {tag["name"]: Section(tag["name"], tag["description"], []) for tag in document["tags"]}
        for path, methods in document["paths"].items():
            for method, operation in methods.items():
                sections[operation["tags"][0]].operations.append(_operation(document, base, path, method, operation))
        objects = [
            ObjectRow(name, _sentence(schema), _fields(document, schema))
            for name, schema in sorted(document["components"]["schemas"].items())
            if schema.get("type") == "object"
        ]
        info = document["info"]
        return cls(
            info["title"], info["version"], [marked(text) for text in info["description"].split("\n\n")], base, list(sections.values()), objects
        )


def _operation(document: Document, base: str, path: str, method: str, operation: Document) -> OperationRow:
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    answers = [
        AnswerRow(str(status), response["description"], _schema_name(_first(response.get("content", {})).get("schema", {})))
        for status, response in operation["responses"].items()
    ]
    return OperationRow(
        id=operation["operationId"],
        method=method.upper(),
        path=path,
        summary=operation.get("summary", ""),
        description=marked(operation.get("description", "")),
        parameters=[_parameter(document, p) for p in operation.get("parameters", [])],
        body=_fields(document, _resolved(document, body)) if body else [],
        body_name=_schema_name(body) if body else "",
        answers=answers,
        curl=_curl(document, base, path, method, body),
    )


def _parameter(document: Document, p: Document) -> FieldRow:
    schema = p.get("schema", {})
    told = type_of(document, schema)
    return FieldRow(p["name"], p["in"], told, p.get("required", False), _default(schema), marked(p.get("description", "")), _pieces(document, told))


def _fields(document: Document, schema: Document) -> list[FieldRow]:
    required = set(schema.get("required", []))
    return [
        FieldRow(name, "", told, name in required, _default(part), marked(part.get("description", "")), _pieces(document, told))
        for name, part in schema.get("properties", {}).items()
        for told in [type_of(document, part)]
    ]


def _pieces(document: Document, told: str) -> list[tuple[str, str]]:
    objects = document["components"]["schemas"]
    return [(part, part if part in objects and objects[part].get("type") == "object" else "") for part in re.split(r"(\w+)", told) if part]


def type_of(document: Document, schema: Document) -> str:
    """Return a short description of a schema: `string (uuid) or null`, `list of Fault`."""
    if "$ref" in schema:
        name = _schema_name(schema)
        target = document["components"]["schemas"].get(name, {})
        return type_of(document, target) if "enum" in target else name
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return " or ".join(dict.fromkeys(type_of(document, part) for part in schema[key]))
    if "allOf" in schema:
        return type_of(document, schema["allOf"][0])
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    if "const" in schema:
        return json.dumps(schema["const"])
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {type_of(document, schema.get('items', {}))}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {type_of(document, schema['additionalProperties'])}"
    low, high = schema.get("minimum"), schema.get("maximum")
    bounds = f" {low}…{high}" if low is not None and high is not None and high < 10**10 else ""
    return f"{kind} ({schema['format']})" if "format" in schema else f"{kind}{bounds}"


def _resolved(document: Document, schema: Document) -> Document:
    return document["components"]["schemas"][_schema_name(schema)] if "$ref" in schema else schema


def _first(content: Document) -> Document:
    """Return the content of a response, regardless of its media type."""
    return next(iter(content.values()), {})


def _schema_name(schema: Document) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2]


def _default(schema: Document) -> str:
    value = schema.get("default")
    return "" if value in (None, "", [], {}) or isinstance(value, dict) else json.dumps(value)


def _sentence(schema: Document) -> SafeString:
    return marked(" ".join(schema.get("description", "").split()))


def marked(text: str) -> SafeString:
    """Return the text with words in backticks marked as code."""
    return mark_safe("".join(f"<code>{escape(part)}</code>" if odd % 2 else escape(part) for odd, part in enumerate(text.split("`"))))


SAMPLES = {"run_id": "$RUN", "task_id": "$TASK", "number": "1", "sha": "$SHA", "verification_id": "$REPORT"}


def _curl(document: Document, base: str, path: str, method: str, body: Document | None) -> str:
    filled = re.sub(r"{(\w+)}", lambda found: SAMPLES.get(found[1], f"${found[1].upper()}"), path)
    words = ["curl -sS"]
    if path.endswith("/stream"):
        words[0] += " -N"
    words.append('-H "Authorization: Bearer $STITCHWORK_TOKEN"')
    if method == "post":
        words.append("-H 'Content-Type: application/json'")
        words.append(f"-d '{json.dumps(_sample(document, _resolved(document, body or {})), ensure_ascii=False)}'")
    words.append(f'"{base}{filled}"')
    return " \\\n  ".join(words)


def _sample(document: Document, schema: Document) -> Any:
    """Return a sample body: the schema's own example or, failing that, its required fields."""
    if schema.get("examples"):
        return schema["examples"][0]
    required = schema.get("required") or list(schema.get("properties", {}))[:1]
    return {name: _value(document, schema["properties"][name]) for name in required}


def _value(document: Document, schema: Document) -> Any:
    if schema.get("examples"):
        return schema["examples"][0]
    if "default" in schema:
        return schema["default"]
    if "enum" in schema:
        return schema["enum"][0]
    if "$ref" in schema:
        return _sample(document, _resolved(document, schema))
    if "anyOf" in schema:
        return _value(document, next((part for part in schema["anyOf"] if part.get("type") != "null"), {}))
    if schema.get("format") == "uuid":
        return "2f1c6a52-53a4-4c0b-8d2e-0b6c8f3f9f11"
    return {"integer": 1, "number": 1.0, "boolean": False, "array": [], "object": {}}.get(schema.get("type", ""), "…")
