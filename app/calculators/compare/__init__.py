r"""The papers' printed statements next to what is proven: one module per family, all returning findings."""
