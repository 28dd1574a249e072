"""Checking a certificate: signature, consistency, recomputation, files."""
