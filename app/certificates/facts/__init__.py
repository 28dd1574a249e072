"""What a certificate states, as data."""
