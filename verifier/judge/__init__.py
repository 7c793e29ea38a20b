"""The judge: one trusted process a device, its jobs, and the parties that it lends them to."""
