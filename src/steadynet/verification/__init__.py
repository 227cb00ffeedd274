"""Verification: properties in, verdicts out, on disk and from Python."""
