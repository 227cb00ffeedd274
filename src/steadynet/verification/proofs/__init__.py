"""Proofs that anyone can check: what the search found, written so that ``steadycheck`` proves it again by itself.

The arithmetic of a proof is that of ``steadycheck`` (the folder ``checker/``), so writing needs it, too.
"""
