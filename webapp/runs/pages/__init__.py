"""Pages for runs: the list, a run with its candidates and timeline, and steering."""
