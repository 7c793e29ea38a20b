"""The worker processes, and how jobs are handed over to them."""
