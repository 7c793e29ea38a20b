"""Building what a program asks for, in a sandbox, once."""
