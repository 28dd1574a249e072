"""The best of a random number of runs: its largest loss, its profile and lower ends for that. proofs/selected.md."""
