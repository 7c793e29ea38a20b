"""Signals about runs for other apps, sent in the same transaction as the event."""

from django.dispatch import Signal

run_paused = Signal()  # arguments: `run`, its id, and `reason`; not sent if a person paused it
run_ended = Signal()  # argument: `run`, its id; sent after the end has been written and projected
