"""The paper's experiments, a grid of networks and methods each: trained, evaluated, verified, tabulated, resumable."""
