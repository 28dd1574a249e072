"""Several trainings on one data set, side by side. ``spec`` is free of torch, ``train`` isn't."""
