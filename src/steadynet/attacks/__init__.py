"""Attacks: the region around each image, and projected gradient descent inside it."""
