"""How a judge comes up, and what a host prepares for it."""
