"""A folder for each algorithm with the code that runs its specs. Needs torch."""
