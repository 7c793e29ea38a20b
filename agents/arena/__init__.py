"""The arena: workflows compared under one budget, on real tasks, or on landscapes that were measured once and are played ever after."""
