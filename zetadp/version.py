"""The version of this code, as certificates and the API name it; ``pyproject.toml`` reads it from here."""

VERSION = "0.1.0"
