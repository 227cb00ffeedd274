"""Training on several processes, with the same result as on one."""
