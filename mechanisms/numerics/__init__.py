"""Mathematics that mechanisms and accountants share: Gaussian differential privacy, Mills ratios, logarithms, low-pass filters."""
