"""The database's tables. One place, since they refer to one another and the folders that use them don't."""
