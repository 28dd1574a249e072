"""A folder for each algorithm: how its specs are run. Needs torch."""
