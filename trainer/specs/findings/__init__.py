"""What a run, its attacks and a device were found to do."""
