"""What every test has: a choice of those that run by default, and an order."""

pytest_plugins = ["tests.scheduling", "tests.selection"]
