r"""Data sets of photographs that are read from their own folders."""
