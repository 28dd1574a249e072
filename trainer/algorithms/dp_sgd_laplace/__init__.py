"""DP-SGD of a distributed autoencoder with Laplace or Gaussian noise on the gradient of all its weights. ``spec`` is free of torch."""
