"""The judge: one trusted process per device, its jobs, and the parties that it lends to them."""
