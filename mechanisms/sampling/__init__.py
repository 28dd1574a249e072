"""Exact noise, drawn on a grid from a cryptographic stream without rounding any probability."""
