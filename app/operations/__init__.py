r"""Running the service: metrics, readiness, room on the disk, backups and how long things are kept."""
