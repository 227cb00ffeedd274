"""Runs on disk: their directory, their tensors, the trained network, and what is measured of it."""
