"""What holds a program back, by fixed rules."""
