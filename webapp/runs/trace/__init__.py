"""A trace: written, projected, read, searched, kept on disk."""
