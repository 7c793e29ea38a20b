"""Evidence that a program is what it says: what its source shows, and what its run shows."""
