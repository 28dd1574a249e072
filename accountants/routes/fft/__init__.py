"""The grid route: laws of the privacy loss on a lattice, composed by tilted FFT."""
