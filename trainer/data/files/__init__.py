"""Files that data sets are read from, without trust in what they hold."""
