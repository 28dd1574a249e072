r"""One module per paper: its experiments, each in every reading that the paper leaves open."""
