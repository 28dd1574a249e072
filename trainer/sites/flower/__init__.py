r"""What runs in Flower's own environment, whose libraries have other versions than ours: it imports nothing of zetadp."""
