"""Exact noise: drawn on a grid from a cryptographic stream, with no probability rounded; and a test of what was drawn."""
