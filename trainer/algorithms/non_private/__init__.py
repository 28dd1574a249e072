"""Ordinary training, without privacy: the baseline for private training."""
