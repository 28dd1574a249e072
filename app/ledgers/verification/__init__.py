r"""Checks a ledger: every digest and rule of its history, the balance recomputed from the entries, and the figures stored with them."""
