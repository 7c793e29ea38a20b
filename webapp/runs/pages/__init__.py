"""Pages of runs: the list, one run, its candidates, its timeline, steering."""
