"""A certificate as a document to read: the same content as a page and as a PDF. Import what you need from its modules."""
