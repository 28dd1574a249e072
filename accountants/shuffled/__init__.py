"""Shuffled batches: bounded by one whole release an epoch, and by what a test of concrete data sets finds. proofs/shuffled.md."""
