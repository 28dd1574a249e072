r"""The service: HTTP, database, queue, certificates. It stores and admits events, runs specs and signs what is proven."""
