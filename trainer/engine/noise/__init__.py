"""Noise as tensors: drawn, added, watched."""
