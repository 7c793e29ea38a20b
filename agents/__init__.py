"""The multi-agent engine: roles, workflows and strategies."""
