r"""Privacy budgets as a service: reserve before the noise is drawn, commit what was released, release the rest. Never overspent."""
