r"""Complex Gaussian noise as the zeta-DP and the federated-learning paper state it, and as it really is."""
