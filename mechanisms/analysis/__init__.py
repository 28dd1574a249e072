"""Sensitivities, ranges and operation counts of the papers' algorithms, behind the mechanisms and the errata."""
