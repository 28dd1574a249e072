"""What every test has: cheap collection, a choice of those that run by default, their order, and the proof that nothing is left running."""

pytest_plugins = ["tests.collecting", "tests.leftovers", "tests.scheduling", "tests.selection"]
