r"""The papers' experiments: the privacy figures they print, computed again by the accountants under every convention that may be meant."""
