"""A spec for each algorithm. Free of torch."""
