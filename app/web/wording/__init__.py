"""What pages say: names and explanations of fields, terms, and the vocabulary."""
