"""What the leaderboard shows of single things: a task's page, a result's page and its badge, and what is open to people who don't sign in."""
