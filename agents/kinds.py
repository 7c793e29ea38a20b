"""Payload models: the base class for each kind of event, and how payloads are read from and written to a trace. The kinds are in
agents/payloads.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, ValidationError, model_serializer

if TYPE_CHECKING:
    Number = float
else:
    Number = int | float  # preserves the number as written: 3 does not become 3.0
Amounts = dict[str, Number]  # amounts, keyed by budget unit
Limits = dict[str, Number | None]  # limits, keyed by budget unit; null means no limit


def says(text: str, alias: str | None = None) -> Any:
    """Describes a field. `alias` is the field's name in the trace, for names that are Python keywords."""
    return Field(description=text, alias=alias)


class Part(BaseModel):
    """A part of a payload. Only fields that were set are written."""

    model_config = ConfigDict(extra="allow", frozen=True, populate_by_name=True, serialize_by_alias=True)

    @model_serializer(mode="wrap")
    def _as_given(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields = type(self).model_fields
        left_out = {fields[name].alias or name for name in fields.keys() - self.model_fields_set}
        return {name: value for name, value in handler(self).items() if name not in left_out}


class Payload(Part):
    """The contents of an event of one kind. `event`, below, gives each kind its name."""

    kind: ClassVar[str]
    words: ClassVar[str]  # what such an event is called after the word "on"
    found_under: ClassVar[tuple[str, ...]]  # filter groups for searches in the trace
    shown: ClassVar[str]  # the values that the run's row takes from it
    in_order: ClassVar[bool]  # whether a resumed workflow writes it again in the same place in its span

    @property
    def effect(self) -> str:
        """The journal key of the effect that the event belongs to, or "" if there is none."""
        return ""

    def having(self, **fields: Any) -> Self:
        """Returns a copy with these values set as well. Raises `TypeError` for a field that does not exist."""
        if unknown := fields.keys() - type(self).model_fields.keys():
            raise TypeError(f"{self.kind} has no {', '.join(sorted(unknown))}")
        return self.model_copy(update=fields)

    def written(self) -> dict[str, Any]:
        """Returns the payload as JSON, for the trace."""
        return self.model_dump()  # strings stay unchanged here; `agents.events.storable` makes them storable


P = TypeVar("P", bound=Payload)
PAYLOADS: dict[str, type[Payload]] = {}  # payload classes, keyed by kind


def event(kind: str, words: str, found_under: tuple[str, ...] = (), *, shown: str = "", in_order: bool = True) -> Callable[[type[P]], type[P]]:
    """Registers a payload class for `kind`; the other arguments are described in `Payload`."""

    def named(payload: type[P]) -> type[P]:
        payload.kind, payload.words, payload.found_under, payload.shown, payload.in_order = kind, words, found_under, shown, in_order
        PAYLOADS[kind] = payload
        return payload

    return named


def read(kind: str, payload: dict[str, Any]) -> Payload:
    """Returns the typed payload. A required value that is null counts as a missing key. Raises `ValueError` if the data does not match `kind`."""
    try:
        return PAYLOADS[kind].model_validate(payload)
    except ValidationError:
        return PAYLOADS[kind].model_validate(_without_nulls(payload))


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value
