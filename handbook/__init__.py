r"""How the handbook is built from ``docs/``: what is generated from the code, and what is read from where it lies."""
