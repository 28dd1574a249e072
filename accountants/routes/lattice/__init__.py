"""Laws with atoms: Laplace noise and randomized response, repeated."""
