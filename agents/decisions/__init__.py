"""Trees of decisions: what could be done to a program, what was done, and how much each is believed to bring (the workflow `worldmodel`)."""
