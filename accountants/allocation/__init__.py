"""Random allocation: each record takes part in one of several releases, chosen by itself. proofs/allocation.md."""
