"""Which layers of which packages train: tried one by one, and compared with the table in the handbook."""
