r"""Loaded by the fork server of the tests alone: all that a process forked from it finds there.

With it the facts of the data set of the tests of jobs, for which scikit-learn takes seconds.
"""

from __future__ import annotations

import gc
import importlib
import pkgutil

from zetadp.app import cli

# Millions of objects that live as long as the server. A look for garbage, there or in a child, would go through them again and again, and
# in a child it would copy each page of memory that they are on.
gc.disable()
for _name in (
    "zetadp.app.main",
    "zetadp.app.worker.process",
    *(f"zetadp.app.cli.{found.name}" for found in pkgutil.iter_modules(cli.__path__)),
    "tests.app.jobs_harness",
    "zetadp.trainer.algorithms.zeta_dp_sgd.train",
):
    importlib.import_module(_name)

from zetadp.trainer.data import DigitsPhasePairs, data_set_facts  # noqa: E402

FACTS = data_set_facts(DigitsPhasePairs(split_seed=0, test_fraction=0.2))
gc.freeze()
gc.enable()
