"""Ordinary training, without privacy: what private training is compared with."""
