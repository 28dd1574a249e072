r"""Federations over Flower, without torch: what sites agree to, their own ledgers, signed messages, and Flower's processes."""
