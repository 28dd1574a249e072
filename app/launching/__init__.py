"""Starts a worker for each job where its resources are: on this machine, by Slurm, or as a Job of Kubernetes."""
