"""Private training and its accounting."""
