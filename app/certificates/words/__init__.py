"""Every sentence that a reader sees of a certificate, made from its facts."""
