"""Shows the training of Coders, as curves and as rollouts in the form of traces, based on the folders that `python -m agents.rl train` writes."""
