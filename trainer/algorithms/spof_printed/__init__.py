"""SPOF as printed: for comparison, without a guarantee."""
