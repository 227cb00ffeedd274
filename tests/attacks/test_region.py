"""The box around an image: by hand, clipped, sampled, projected on."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from helpers import quick, some_images
from steadynet.attacks.region import InputRegion
from steadynet.errors import UserError


def test_by_hand():
    images = torch.tensor([[0.0, 0.5, 1.0]])
    clipped, whole = InputRegion.around(images, 0.25), InputRegion.around(images, 0.25, clip=False)
    assert (clipped.lower.tolist(), clipped.upper.tolist()) == ([[0, 0.25, 0.75]], [[0.25, 0.75, 1]])
    assert (whole.lower.tolist(), whole.upper.tolist()) == ([[-0.25, 0.25, 0.75]], [[0.25, 0.75, 1.25]])


def test_radius_zero_is_the_image():
    images = some_images()
    region = InputRegion.around(images, 0.0)
    assert region.lower.equal(images)
    assert region.upper.equal(images)
    assert region.sample().equal(images)


def test_images_outside_the_pixel_range_are_an_error_rather_than_an_empty_box():
    normalised = torch.tensor([[-2.0, 0.5]])
    with pytest.raises(UserError, match="clip=False"):
        InputRegion.around(normalised, 0.1)
    assert InputRegion.around(normalised, 0.1, clip=False).contains(normalised).all()


def test_images_with_255_grey_levels_are_to_be_divided():
    with pytest.raises(UserError, match=r"values up to 255, and pixels lie in .* divide them by 255"):
        InputRegion.around(torch.tensor([[0.0, 255.0]]), 0.1)


def test_a_negative_radius_is_an_error():
    with pytest.raises(UserError, match="radius"):
        InputRegion.around(torch.tensor([[0.5]]), -0.1, clip=False)


@quick
@given(st.floats(0, 2), st.booleans(), st.integers(0, 1000))
def test_image_samples_and_projections_lie_inside(radius, clip, seed):
    torch.manual_seed(seed)
    images = torch.rand(4, 3, 2, 2)
    region = InputRegion.around(images, radius, clip=clip)
    far = region.project(torch.randn_like(images) * 5)
    for points in (images, region.sample(), far, region.lower, region.upper):
        assert region.contains(points).all()
    assert region.project(images).equal(images)


def test_samples_fill_the_box():
    region = InputRegion(torch.zeros(20_000, 1), torch.full((20_000, 1), 2.0))
    torch.manual_seed(0)
    samples = region.sample()
    assert samples.mean().item() == pytest.approx(1, abs=0.02)
    assert samples.var().item() == pytest.approx(1 / 3, abs=0.02)


def test_contains_speaks_for_each_image_and_never_for_nan():
    region = InputRegion.around(torch.full((3, 2), 0.5), 0.25)
    points = torch.tensor([[0.25, 0.75], [0.5, 0.7500001], [0.5, float("nan")]])
    assert region.contains(points).tolist() == [True, False, False]


def test_rows_of_a_region():
    region = InputRegion.around(some_images(4), 0.1)
    part = region[torch.tensor([2, 0])]
    assert len(part) == 2
    assert part.lower.equal(region.lower[[2, 0]])
    assert part.upper.equal(region.upper[[2, 0]])
