"""Diagnoses what holds a program back, by fixed rules."""
