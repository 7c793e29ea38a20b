"""Chooses the next change to a program's choices: a search's knowledge expressed as features, and a trained ranking of moves. Does not need torch."""
