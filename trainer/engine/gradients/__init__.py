"""From records to a clipped sum of per-unit gradients, and the checks of it."""
