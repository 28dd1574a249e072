"""From a finished run to a signed and stored certificate."""
