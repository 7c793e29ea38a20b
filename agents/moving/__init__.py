"""Chooses the next change to a program: expresses a search's knowledge as features and ranks the moves with a trained network. Does not need
torch."""
