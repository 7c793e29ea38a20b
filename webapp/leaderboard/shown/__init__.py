"""Pages that show one task, or one result with its badge, and access to results without an account."""
