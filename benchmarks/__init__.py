r"""Benchmarks: never timed tests, always ratios."""
