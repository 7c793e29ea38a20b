"""Decision trees: possible and completed changes to a program, with the expected gain of each. Used by the `worldmodel` workflow."""
