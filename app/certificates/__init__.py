"""Signed privacy certificates: issued from finished runs, verified offline, read aloud. Import what you need from its modules."""
