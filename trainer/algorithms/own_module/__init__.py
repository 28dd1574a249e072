r"""Private training of a caller's own module, in the caller's process."""
