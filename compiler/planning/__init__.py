"""What becomes a kernel, what it costs, and what to change next."""
