"""Local robustness as files: exact, and in words that other tools read."""

from __future__ import annotations

import re

import numpy as np
import torch

from steadynet.interchange.vnnlib.files import read_vnnlib
from steadynet.interchange.vnnlib.robustness import format_robustness, robustness_property, write_robustness
from steadynet.interchange.vnnlib.version1 import parse_vnnlib1


def box(size: int = 40) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    scales = torch.tensor([1.0, 1e-3, 1e-9, 1e-30])[torch.arange(size) % 4]
    lower = torch.rand(size, generator=generator) * scales
    return lower, lower + torch.rand(size, generator=generator)


def test_the_file_says_what_the_specification_says():
    lower, upper = box()
    expected = robustness_property(lower, upper, 2, 4)
    found = parse_vnnlib1(format_robustness(lower, upper, 2, 4))
    assert (found.input_size, found.output_size, len(found.disjuncts)) == (40, 4, 3)
    for one, other in zip(found.disjuncts, expected.disjuncts, strict=True):
        for name in ("lower", "upper", "matrix", "bound"):
            assert np.array_equal(getattr(one, name), getattr(other, name))
    assert torch.equal(torch.from_numpy(found.disjuncts[0].lower).float(), lower)


def test_only_the_plainest_words_are_used(tmp_path):
    """α,β-CROWN's reader takes comparisons of two words, and one disjunction; others' take no exponents."""
    write_robustness(tmp_path / "x.vnnlib", *(corner.reshape(1, 5, 8) for corner in box()), 0, 3)
    text = (tmp_path / "x.vnnlib").read_text()
    plain = r"\((declare-const [XY]_\d+ Real|assert \([<>]= X_\d+ \d+\.\d+\)|assert \(or)\)?"
    assert all(re.fullmatch(rf"{plain}|    \(and \(>= Y_\d Y_\d\)\)|\)\)", line) for line in text.splitlines())
    assert read_vnnlib(tmp_path / "x.vnnlib").input_size == 40
