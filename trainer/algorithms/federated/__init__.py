"""Federated zeta-DP-SGD: units are at nodes, each of which adds its own noise. ``spec`` is free of torch, ``train`` isn't."""
