"""What a payload is: the model of a kind of event, how it is read from a trace, how it is written. The kinds are in agents/payloads.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, ValidationError, model_serializer

if TYPE_CHECKING:
    Number = float
else:
    Number = int | float  # kept as it was written: 3 does not become 3.0
Amounts = dict[str, Number]  # by unit of the budget
Limits = dict[str, Number | None]  # by unit of the budget; null is no limit


def says(text: str, alias: str | None = None) -> Any:
    """Describes a field. `alias`: its name in the trace, where that is a word of Python's."""
    return Field(description=text, alias=alias)


class Part(BaseModel):
    """A part of a payload. It is written with the fields that its author gave, and with no others."""

    model_config = ConfigDict(extra="allow", frozen=True, populate_by_name=True, serialize_by_alias=True)

    @model_serializer(mode="wrap")
    def _as_given(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields = type(self).model_fields
        left_out = {fields[name].alias or name for name in fields.keys() - self.model_fields_set}
        return {name: value for name, value in handler(self).items() if name not in left_out}


class Payload(Part):
    """What an event of one kind says; `event` below gives each kind its name."""

    kind: ClassVar[str]
    words: ClassVar[str]  # what such an event is called, as it stands after "on"
    found_under: ClassVar[tuple[str, ...]]  # groups that a search of the trace may be narrowed to
    shown: ClassVar[str]  # what the run's row takes from it
    in_order: ClassVar[bool]  # whether a resumed workflow writes it at the same place of its span again

    @property
    def effect(self) -> str:
        """The journal key of the effect that the event belongs to; empty where it belongs to none."""
        return ""

    def having(self, **fields: Any) -> Self:
        """The same with these values as well. Raises `TypeError` for a field that there is not."""
        if unknown := fields.keys() - type(self).model_fields.keys():
            raise TypeError(f"{self.kind} has no {', '.join(sorted(unknown))}")
        return self.model_copy(update=fields)

    def written(self) -> dict[str, Any]:
        """As JSON, for the trace."""
        return self.model_dump()  # strings as they are: `agents.events.storable` makes of them what a journal can keep


P = TypeVar("P", bound=Payload)
PAYLOADS: dict[str, type[Payload]] = {}  # by kind


def event(kind: str, words: str, found_under: tuple[str, ...] = (), *, shown: str = "", in_order: bool = True) -> Callable[[type[P]], type[P]]:
    """Makes a payload the one of `kind`, as which `Payload` describes the rest."""

    def named(payload: type[P]) -> type[P]:
        payload.kind, payload.words, payload.found_under, payload.shown, payload.in_order = kind, words, found_under, shown, in_order
        PAYLOADS[kind] = payload
        return payload

    return named


def read(kind: str, payload: dict[str, Any]) -> Payload:
    """The payload in its type. A null where there has to be a value counts as a missing key. Raises `ValueError` where it is not what `kind` says."""
    try:
        return PAYLOADS[kind].model_validate(payload)
    except ValidationError:
        return PAYLOADS[kind].model_validate(_without_nulls(payload))


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value
