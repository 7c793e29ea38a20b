"""Signals about runs for other apps, sent in the transaction of the event."""

from django.dispatch import Signal

run_paused = Signal()  # arguments: `run`, its id, and `reason`; sent only if no person paused it
run_ended = Signal()  # argument: `run`, its id; sent after the end has been written and projected
