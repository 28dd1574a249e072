"""The grid route: distributions of the privacy loss on a lattice, composed by tilted FFT."""
