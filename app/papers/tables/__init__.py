r"""What the papers print, typed in with its table. Nothing here is computed, and no computed value is typed in here."""
