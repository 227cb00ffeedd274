"""Training: settings, schedules, the loop, its state, several processes; pruning, grafting and sparsification afterwards."""
