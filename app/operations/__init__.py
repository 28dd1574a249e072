r"""Running the service: metrics, readiness, disk space, backups and retention."""
