"""What other applications hear of runs, within the transaction of what happened."""

from django.dispatch import Signal

run_ended = Signal()  # run: its id; the end is written and projected
