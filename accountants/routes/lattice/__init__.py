"""Loss distributions with atoms: repeated Laplace noise and randomized response."""
