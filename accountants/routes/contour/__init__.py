"""The contour route: numerical inversion of the moment function."""
