"""Attacks: the region around an input, and projected gradient descent inside it."""
