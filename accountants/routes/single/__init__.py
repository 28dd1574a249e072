"""One release: delta as a closed form of tail functions."""
