"""Shows the training of Coders, read from the folders that `python -m agents.rl train` writes: curves, and rollouts as traces."""
