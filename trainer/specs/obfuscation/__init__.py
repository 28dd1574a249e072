"""The parts of the obfuscation spec and its networks. Free of torch."""
