r"""Specs that are known to work, as plain JSON values. Free of torch."""

from __future__ import annotations

from trainer.zeta_dp_sgd.spec import ZetaDpSgd

# Its hyper-parameters were tuned on this public data set: the search itself has no guarantee, and needs none, as nobody's data are in it.
DIGITS_DEMO = ZetaDpSgd.example()
