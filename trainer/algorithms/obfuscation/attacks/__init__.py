r"""Attacks on obfuscated features: what somebody who sees x, and knows the public network, finds out about whom it was made from."""

from trainer.algorithms.obfuscation.attacks.every_attack import curve_figures, run_attacks

__all__ = ["curve_figures", "run_attacks"]
