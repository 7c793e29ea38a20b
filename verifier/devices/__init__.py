"""Devices: what the judge and the parties need of the hardware, `cpu` and `cuda`."""
