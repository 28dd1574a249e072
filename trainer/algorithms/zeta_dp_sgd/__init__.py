"""Zeta-DP-SGD: differentially private gradient descent on complex-valued networks. ``spec`` is free of torch, ``train`` isn't."""
