r"""SPOF, its relatives and its environmental noise, as printed and as they really are."""
