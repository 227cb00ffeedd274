"""Training: settings, schedules, the loop, its state, several processes, and pruning afterwards."""
