"""Where the runs of a sweep are executed: this machine, a Ray cluster, a Slurm cluster."""
