"""Runs on disk: the run directory, its records, weights and checkpoints, the trained network and its evaluation."""
