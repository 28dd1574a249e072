"""Signed privacy certificates: issued from finished runs, verified offline, put into words. Import what you need from its modules."""
