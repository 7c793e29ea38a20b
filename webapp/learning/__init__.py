"""Trainings of Coders, as `python -m agents.rl train` leaves them in folders: curves, and rollouts as traces."""
