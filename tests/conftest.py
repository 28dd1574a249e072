"""What every test has: a choice of those that run by default, their order, and the proof that nothing of them is left running."""

pytest_plugins = ["tests.leftovers", "tests.scheduling", "tests.selection"]
