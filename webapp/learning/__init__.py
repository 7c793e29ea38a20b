"""Shows the training of Coders as curves and as rollouts in the form of traces, read from the folders that `python -m agents.rl train` writes."""
