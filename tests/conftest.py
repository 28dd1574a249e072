"""What every test has: cheap collection, a choice of those that run, their order, digits, and the proof that nothing is left running."""

import os

# Most tests are about answers and not about the processes that compute them: their services compute themselves, unless they say otherwise.
os.environ.setdefault("ZETADP_CALCULATING_PROCESSES", "0")

pytest_plugins = ["tests.collecting", "tests.digits", "tests.leftovers", "tests.scheduling", "tests.selection"]
