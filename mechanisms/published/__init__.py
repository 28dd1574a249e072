r"""The papers' formulas as printed, for comparison only. Nothing here may be reached from a certificate (import-linter forbids it)."""
