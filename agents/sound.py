"""Whether a trace that came from elsewhere says what its events have to say: a stranger may have written it, or half a disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from agents import show
from agents.events import UNSTORABLE, Event
from agents.journal import TRACE, TraceDamaged, encode, read_trace
from agents.projection import Summary, apply

# What code that reads a payload meets where a field is missing, of another type, or beyond all measure.
AMISS = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
LONGEST = 300  # characters of a span's path
DEEPEST = 60  # lists and objects within each other


@contextmanager
def told(what: str) -> Iterator[None]:
    """Raises `TraceDamaged` with `what` for whatever a payload is not."""
    try:
        yield
    except TraceDamaged:
        raise
    except AMISS as error:
        said = str(error).splitlines()[0][:200] if str(error) else ""
        raise TraceDamaged(f"{what} ({type(error).__name__}: {said})") from None


def read(folder: Path) -> tuple[list[Event], dict[str, bytes]]:
    """Events and artefacts of a trace directory, each event sound by itself and after those before it. Raises `TraceDamaged`, and
    `FileNotFoundError` where there is no trace."""
    try:
        with told(f"{TRACE} cannot be read"):
            events, found = read_trace(folder)
            stored = dict(found)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise TraceDamaged(f"{error.filename or folder} cannot be read: {error.strerror}") from None
    check(events)
    return events, stored


def check(events: Sequence[Event], *more: Callable[[Event], object]) -> Summary:
    """What comes of them. `more`: what else is done with each event. Raises `TraceDamaged` with the line."""
    summary = Summary()
    for event in events:
        with told(f"line {event.seq} of {TRACE}: this is not what {event.kind} says"):
            _plain(event)
            event.body.written()  # of kinds that no row is made from as well
            apply(summary, event)
            show.line(event)
            for one in more:
                one(event)
    with told(f"the events of {TRACE} do not make a run"):
        show.page(summary)
    return summary


def _plain(event: Event) -> None:
    if datetime.fromisoformat(event.at).tzinfo is None:
        raise ValueError("a time without a zone")
    if _deep(event.payload) > DEEPEST:
        raise ValueError(f"more than {DEEPEST} lists and objects within each other")
    encode(event.payload)
    if any(UNSTORABLE.search(text) or len(text) > LONGEST for text in (event.span, event.parent, event.run)):
        raise ValueError("a name that no database keeps")


def _deep(value: object) -> int:
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    return 1 + max(map(_deep, inner), default=0)
