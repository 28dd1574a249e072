r"""Pages served from our own files: nothing is loaded from another host."""
