"""Canonical bytes, digests, keys and signatures."""
