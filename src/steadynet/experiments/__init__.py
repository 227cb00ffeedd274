"""Experiments: grids of networks and methods that are trained, evaluated, verified and shown in a table."""
