r"""Calculations in processes apart from the service: bounded, in fair turns, ended when their client goes."""
