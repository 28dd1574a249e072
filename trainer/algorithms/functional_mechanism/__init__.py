"""The functional mechanism: a quadratic loss's coefficients, summed over all records and released once. ``spec`` is free of torch."""
