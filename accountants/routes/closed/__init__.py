"""The closed form: Gaussian differential privacy."""
