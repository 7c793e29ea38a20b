"""People, tasks, runs, leaderboard, live pages and the worker processes around the agents and the verifier."""
