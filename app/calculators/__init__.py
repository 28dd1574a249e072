r"""The calculators: privacy profiles, calibration, and the papers' claims next to what is proven."""
