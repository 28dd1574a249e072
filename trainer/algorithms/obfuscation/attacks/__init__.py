r"""Attacks on obfuscated features: what someone who sees x and knows the public network finds out about the person behind it."""

from zetadp.trainer.algorithms.obfuscation.attacks.every_attack import curve_figures, run_attacks

__all__ = ["curve_figures", "run_attacks"]
