"""Diagnoses what limits a program, using fixed rules."""
