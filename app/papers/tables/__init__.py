r"""What the papers print, typed in with the table it stands in. Nothing here is computed, and nothing computed is typed in here."""
