"""Recipes over HTTP: the experiments that are ready to run, what their papers printed, and what is proven about them."""
