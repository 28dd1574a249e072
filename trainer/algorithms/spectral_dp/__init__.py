"""Spectral-DP: private training on the low frequencies of a network's gradients. ``spec`` is free of torch, ``train`` isn't."""
