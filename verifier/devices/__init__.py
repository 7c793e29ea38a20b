"""Devices: the hardware interfaces (`cpu` and `cuda`) for the judge and the parties."""
