r"""Who may do what: keys with scopes and tenants, limits of rate, and the log of what was done."""
