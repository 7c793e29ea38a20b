"""The multi-agent engine: roles, workflows, strategies, compiler."""
