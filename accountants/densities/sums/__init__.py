"""Compositions of one repeated release whose delta is an exact sum."""
