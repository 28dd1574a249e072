"""SPOF: training of a distributed autoencoder on rows that were released once, each separately. ``spec`` is free of torch."""
