r"""The calculators: privacy profiles, calibration, and the papers' claims beside what is proved."""
