"""The append-only log of certificates: a Merkle tree (RFC 9162) that only grows, its signed heads and its proofs."""
