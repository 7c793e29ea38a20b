"""A policy over plan tokens (group, strategy, value), trained from scratch on landscapes whose programs were measured once."""
