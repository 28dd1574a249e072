"""What the obfuscation spec and its networks are made of. Free of torch."""
