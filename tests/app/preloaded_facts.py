r"""Loaded by the fork server alone: the facts of the data set of the tests of jobs, for which scikit-learn takes seconds."""

from __future__ import annotations

from zetadp.trainer.data import DigitsPhasePairs, data_set_facts

FACTS = data_set_facts(DigitsPhasePairs(split_seed=0, test_fraction=0.2))
