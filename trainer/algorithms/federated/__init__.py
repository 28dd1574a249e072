"""Federated zeta-DP-SGD: units live at nodes, each of which adds its own noise. ``spec`` is free of torch, ``train`` isn't."""
