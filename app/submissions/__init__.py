"""Submitting work: where jobs, ledgers and data sets of a tenant meet."""
