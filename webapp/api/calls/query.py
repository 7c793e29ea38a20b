"""Rejects unknown query parameters by name, because a misspelt parameter would silently change the response."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from django.http import HttpRequest
from ninja.params.models import QueryModel

from webapp.api.calls.problems import CallRefused, Fault


def strict(run: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap an operation. For use with `add_decorator` in "view" mode, which passes the operation's bound `run`.

    The check runs before the values are read but after authentication, so unauthenticated callers learn no parameter names.
    """
    operation: Any = run.__self__  # type: ignore[attr-defined]  # from the bound method
    known = [name for model in operation.models if issubclass(model, QueryModel) for name in model.__ninja_flatten_map__]
    values = operation._get_values

    def checked(request: HttpRequest, *arguments: Any) -> dict[str, Any]:
        check(request.GET, known)
        found: dict[str, Any] = values(request, *arguments)
        return found

    operation._get_values = checked
    return run


def check(given: Iterable[str], known: list[str]) -> None:
    """Raise `CallRefused` for unknown names."""
    hint = f"Known here: {', '.join(known)}." if known else "This operation takes none."
    faults = [Fault(where=f"query.{name[:100]}", message="there is no such parameter", hint=hint) for name in sorted(set(given) - set(known))]
    if faults:
        raise CallRefused(422, "; ".join(f"{fault.where}: {fault.message}" for fault in faults[:8]), hint, faults[:50])
