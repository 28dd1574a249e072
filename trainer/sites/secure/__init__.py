r"""Secure aggregation: the coordinator learns one sum of enough sites' integers modulo a power of two, and no single site's."""
