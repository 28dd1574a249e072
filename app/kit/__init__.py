"""What every part of the service stands on: settings, database, problems, logs, disk."""
