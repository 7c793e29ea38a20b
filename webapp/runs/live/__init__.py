"""Live pages: whoever follows a run, and what is sent to them."""
