r"""Secure aggregation: the coordinator learns the sum of the sites' integers modulo a power of two, and nothing else of any of them."""
