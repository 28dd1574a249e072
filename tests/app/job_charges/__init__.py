"""What jobs charge to ledgers."""
