"""SPOF: training of a distributed autoencoder on rows that were released once, each by itself. ``spec`` is free of torch."""
