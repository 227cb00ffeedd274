"""Properties whose truth is known by construction, for any verifier: one file per family of instances."""
