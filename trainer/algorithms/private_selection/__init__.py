"""The best of a secret number of trainings. ``spec`` is free of torch, ``train`` isn't."""
