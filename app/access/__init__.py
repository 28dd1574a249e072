r"""Access control: keys with scopes and tenants, rate limits, and the audit log."""
