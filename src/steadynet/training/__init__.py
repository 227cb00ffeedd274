"""Training: settings, schedules, the loop, its state, and what a user sees of it."""
