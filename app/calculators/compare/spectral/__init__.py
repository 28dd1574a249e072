r"""Spectral-DP as printed and as it really is, with the classic Gaussian noise that it uses for calibration."""
