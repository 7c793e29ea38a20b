"""Signals about runs for other apps. Those about events are sent in the same transaction as the event."""

from django.dispatch import Signal

run_paused = Signal()  # arguments: `run`, its id, and `reason`; not sent if a person paused it
run_ended = Signal()  # argument: `run`, its id; sent after the end has been written and projected
run_opened = Signal()  # arguments: `run`, the `Run`, and `user`, a person or a guest; sent before a run's page is rendered
