r"""Moment functions of their own: of Laplace noise, bounded losses, parts by a window, and one of two pairs. proofs/contour.md."""
