"""The judge: one trusted process per device, together with its jobs and the parties that it assigns to them."""
