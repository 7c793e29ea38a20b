"""Planner, Coder and Verifier: the data that they exchange (`situation`), the built-in roles that are based on the compiler, the roles that ask a
language model, and the choice between them (`casting`)."""
