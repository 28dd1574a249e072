r"""Files that tenants upload, and the data sets that they make from them."""
