"""The processes that do the work, and how it gets to them."""
