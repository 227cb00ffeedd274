"""Images, splits, batches and augmentation against plain per-image references."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from steadynet.data import Dataset, Images, batch_count, batches, load
from steadynet.data.augmentation import PADDING, augmented, cropped
from steadynet.data.dataset import stratified_split
from steadynet.errors import UserError


def numbered(count: int, classes: int = 2) -> Images:
    """Images whose single pixel is their own number."""
    return Images(torch.arange(count, dtype=torch.uint8).reshape(-1, 1, 1, 1), torch.arange(count) % classes)


def cropped_one_by_one(images, down, right, mirror):
    _, channels, height, width = images.shape
    result = torch.zeros_like(images)
    for n, (dy, dx) in enumerate(zip(down.tolist(), right.tolist(), strict=True)):
        canvas = torch.zeros(channels, height + 2 * PADDING, width + 2 * PADDING)
        canvas[:, PADDING : PADDING + height, PADDING : PADDING + width] = images[n]
        window = canvas[:, dy : dy + height, dx : dx + width]
        result[n] = window.flip(-1) if mirror[n] else window
    return result


def test_pixels_are_bytes_over_255_and_floats_stay():
    assert torch.equal(numbered(3).pixels(torch.tensor([2])), torch.full((1, 1, 1, 1), 2 / 255))
    floats = Images(torch.tensor([[0.25], [1.0]]), torch.tensor([0, 1]))
    assert torch.equal(floats.pixels(slice(1, 2)), torch.tensor([[1.0]]))
    assert numbered(3).images.dtype == torch.uint8  # asking for pixels changes nothing
    assert all(part.pixels().dtype == torch.float32 for part in (numbered(3), floats))


def test_first_of_each_class_takes_turns():
    images = Images(torch.zeros(7, 1), torch.tensor([2, 0, 2, 1, 1, 0, 0]))
    assert images.first_of_each_class(2).tolist() == [1, 3, 0, 5, 4, 2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((4,), "class 0 has only 3 images, but 4"), ((1, 3), "class 2 has only 0 images"), ((0,), "at least 1")],
)
def test_first_of_each_class_names_the_class_with_too_few(arguments, message):
    with pytest.raises(UserError, match=message):
        numbered(6).first_of_each_class(*arguments)


def test_split_of_digits_is_stratified_seeded_and_leaves_the_test_set_alone():
    digits = load("digits")
    training, validation = digits.split(0.1, seed=3)
    assert validation.labels.bincount().tolist() == [40] * 10
    assert training.labels.bincount().tolist() == [360] * 10
    again, other = digits.split(0.1, seed=3)[1], digits.split(0.1, seed=4)[1]
    assert torch.equal(validation.images, again.images)
    assert not torch.equal(validation.images, other.images)
    everything, _ = digits.split(0.0, seed=3)
    assert len(everything) == 4000


def test_split_does_not_touch_the_global_generator():
    before = torch.get_rng_state()
    load("digits").split(0.5, seed=1)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("fraction", [-0.1, 1.0, float("nan")])
def test_split_refuses_a_fraction_that_is_none(fraction):
    with pytest.raises(UserError, match="validation fraction"):
        Dataset("tiny", numbered(4), numbered(4), ("a", "b")).split(fraction, seed=0)


@given(st.lists(st.integers(0, 4), max_size=60), st.floats(0, 0.99), st.integers(0, 2**31))
def test_a_stratified_split_is_a_partition_in_proportion(labels, fraction, seed):
    kept, held_out = stratified_split(torch.tensor(labels, dtype=torch.int64), fraction, seed)
    assert sorted(kept.tolist() + held_out.tolist()) == list(range(len(labels)))
    for label in set(labels):
        members = labels.count(label)
        out = sum(labels[i] == label for i in held_out.tolist())
        assert members - out >= 1
        assert abs(out - fraction * members) <= 1
        assert out >= 1 or fraction == 0 or members == 1


@given(st.integers(0, 20), st.integers(1, 8), st.booleans())
def test_batches_yield_every_image_once_and_as_many_as_counted(count, size, shuffle):
    images = numbered(count)
    order = torch.randperm(count) if shuffle else None
    got = list(batches(images, size, order=order))
    assert len(got) == batch_count(images, size)
    assert all(len(pixels) == size for pixels, _ in got[:-1])
    seen = [round(float(value) * 255) for pixels, _ in got for value in pixels]
    assert sorted(seen) == list(range(count))
    assert shuffle or seen == list(range(count))
    assert [label for _, labels in got for label in labels.tolist()] == [number % 2 for number in seen]


def test_a_restored_generator_gives_the_same_batches():
    images = Images(torch.rand(50, 3, 8, 8), torch.arange(50) % 2)
    state = torch.get_rng_state()
    first = list(batches(images, 16, augment=True))
    torch.set_rng_state(state)
    again = list(batches(images, 16, augment=True))
    assert all(torch.equal(a, b) and torch.equal(y, z) for (a, y), (b, z) in zip(first, again, strict=True))
    other = list(batches(images, 16, augment=True))
    assert not torch.equal(first[0][0], other[0][0])


def test_batches_refuse_a_batch_size_below_one():
    with pytest.raises(UserError, match="batch size is 0"):
        next(batches(numbered(2), 0))


@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 7), st.integers(1, 7), st.integers(0, 2**31))
def test_cropping_a_batch_is_cropping_one_by_one(count, channels, height, width, seed):
    generator = torch.Generator().manual_seed(seed)
    images = torch.rand(count, channels, height, width, generator=generator)
    down, right = torch.randint(0, 2 * PADDING + 1, (2, count), generator=generator)
    mirror = torch.rand(count, generator=generator) < 0.5
    expected = cropped_one_by_one(images, down, right, mirror)
    assert torch.equal(cropped(images, down, right, mirror), expected)


def test_augmentation_draws_every_shift_and_mirrors_about_half():
    torch.manual_seed(0)
    image = torch.zeros(1, 1, 16, 16)
    image[0, 0, 7, 6] = 1  # off centre, so that its column tells whether it was mirrored
    shown = augmented(image.expand(4000, 1, 16, 16))
    _, _, rows, columns = torch.nonzero(shown, as_tuple=True)
    assert len(rows) == 4000
    assert set(rows.tolist()) == set(range(3, 12))
    assert set(columns.tolist()) == set(range(2, 14))  # 2..10 as it is, 5..13 mirrored
    assert abs((columns > 10).float().mean() - 0.5 * 3 / 9) < 0.03
