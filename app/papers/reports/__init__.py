r"""One module a paper: its experiments, each read in every way that the paper leaves open."""
