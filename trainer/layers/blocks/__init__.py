r"""Layers that are made of others, layers on sequences, and what stands for a batch norm of fixed statistics."""
