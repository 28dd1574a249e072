r"""Spectral-DP as printed and as it is, with the classic Gaussian noise it is calibrated by."""
