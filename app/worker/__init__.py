"""The process that trains: takes waiting jobs, one at a time, and runs each in a child; beside it, it prepares others."""
