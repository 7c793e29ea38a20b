"""The web application: accounts, tasks, runs, leaderboard and live pages, and the worker processes that run the agents and the verifier."""
