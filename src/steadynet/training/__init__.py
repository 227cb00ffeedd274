"""Training: settings, schedules, the loop and its state, several processes; then pruning, grafting, sparsification."""
