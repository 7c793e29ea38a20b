"""What surrounds torch.export: values that it cannot follow, computations that it would refuse, and what it would miss."""
