"""The arena: compares workflows under the same budget, either on real tasks or on landscapes that were measured once and are replayed."""
