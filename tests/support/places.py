"""Where the tests find the repository, and the reference files beside it (they may be missing)."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared"
