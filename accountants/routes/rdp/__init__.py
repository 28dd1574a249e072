"""Renyi accounting."""
