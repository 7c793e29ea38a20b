"""Pages that show one task or one result with its badge, and the results that are open to people who don't sign in."""
