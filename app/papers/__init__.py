r"""The papers' experiments: their printed privacy figures, recomputed by the accountants under every convention that may be meant."""
