"""Complex-feature obfuscation: networks whose features are rotated by a secret angle, and what this does and does not hide."""
