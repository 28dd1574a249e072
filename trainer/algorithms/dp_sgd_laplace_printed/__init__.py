"""DP-SGD with Laplace noise as printed: for comparison, without a guarantee."""
