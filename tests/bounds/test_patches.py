"""Convolutions on patches as matrices, against the transposed convolution of PyTorch."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from steadynet.bounds.patches import Matrices, Patch, WindowedLayers, transposed_on_patches
from steadynet.graph.operations import Convolution


@pytest.mark.parametrize(("outputs", "inputs"), [(8, 1), (2, 5)], ids=["few inputs", "few outputs"])
@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (1, 2)])
def test_the_matrix_of_a_convolution_is_its_transpose(outputs: int, inputs: int, stride: int, dilation: int) -> None:
    """The matrix is built from the inputs or the outputs, whichever are fewer; the result is the same."""
    torch.manual_seed(0)
    weight = torch.randn(outputs, inputs, 3, 3, dtype=torch.float64)
    convolution = Convolution(weight, None, (stride, stride), (1, 1), (dilation, dilation), 1)
    rows, matrices = torch.randn(4, outputs, 3, 3, dtype=torch.float64), Matrices()
    expected = F.conv_transpose2d(rows, weight, stride=stride, dilation=dilation)
    for _ in range(2):  # the second call takes the matrix that the first one kept
        torch.testing.assert_close(transposed_on_patches(convolution, rows, matrices), expected)
    assert len(matrices) == 1


PATCH = Patch(grid=(3, 4), stride=(2, 1), offset=(1, 1), size=(3, 2))  # some windows hang over the edge of a 5×4 map


def window(layer: torch.Tensor, cell: int) -> torch.Tensor:
    """What one cell sees of a map (channels, 5, 4), pixel by pixel; zero outside."""
    top, left = cell // 4 * 2 - 1, cell % 4 - 1
    inside = [[0 <= top + y < 5 and 0 <= left + x < 4 for x in range(2)] for y in range(3)]
    return torch.stack(
        [
            torch.stack(
                [
                    layer[:, top + y, left + x] if inside[y][x] else torch.zeros(len(layer), dtype=layer.dtype)
                    for x in range(2)
                ],
                1,
            )
            for y in range(3)
        ],
        1,
    )


@pytest.mark.parametrize("last", [False, True], ids=["channels first", "channels last"])
@pytest.mark.parametrize("owner", [None, [0, 0, 2], [1, 2, 2]], ids=["each its own", "first and last", "some"])
def test_each_function_sees_the_windows_of_its_property(owner: list[int] | None, last: bool) -> None:
    torch.manual_seed(0)
    layers = torch.randn(3, 2, 5, 4), torch.randn(3, 2, 5, 4)
    cells = torch.tensor([0, 5, 11])
    seen = WindowedLayers(layers).seen(PATCH, cells, None if owner is None else torch.tensor(owner), last)
    assert seen[:, 0].stride()[1:] == ((1, 4, 2) if last else (6, 2, 1))
    for row, (one, cell) in enumerate(zip(owner or [0, 1, 2], cells.tolist(), strict=True)):
        for number, layer in enumerate(layers):
            torch.testing.assert_close(seen[row, number], window(layer[one], cell), rtol=0, atol=0)


def test_one_property_serves_every_function() -> None:
    layer = torch.randn(1, 2, 5, 4)
    seen = WindowedLayers([layer]).seen(PATCH, torch.tensor([3, 7]), torch.tensor([0, 0]))
    torch.testing.assert_close(seen[1, 0], window(layer[0], 7), rtol=0, atol=0)


def test_no_function_sees_nothing() -> None:
    none = torch.zeros(0, dtype=torch.long)
    assert WindowedLayers([torch.randn(1, 2, 5, 4)]).seen(PATCH, none, none).shape == (0, 1, 2, 3, 2)


def test_windows_are_cut_once_for_many_functions_and_anew_for_changed_tensors(monkeypatch) -> None:
    layer, cuts, cut = torch.randn(2, 1, 5, 4), list[int](), Patch.cut
    monkeypatch.setattr(Patch, "cut", lambda self, *rest: (cuts.append(len(rest[0])), cut(self, *rest))[1])
    layers, cells = WindowedLayers([layer]), torch.tensor([2, 6])
    for _ in range(3):
        layers.seen(PATCH, cells, torch.tensor([1, 1]))
    assert cuts == [1]
    layer.view(2, -1)[1] = 7.0  # as a search does with the lines of a ReLU that it tries to split
    torch.testing.assert_close(layers.seen(PATCH, cells, torch.tensor([1, 1]))[1, 0], window(layer[1], 6))
    torch.testing.assert_close(layers.seen(PATCH, cells, torch.tensor([0, 1]))[0, 0], window(layer[0], 2))
    assert cuts == [1, 1, 2]


@pytest.mark.parametrize("channels_last", [False, True])
def test_windows_that_lie_in_the_padding_are_zero(channels_last) -> None:
    """A stride as long as the image leaves a single window, all of it in the padding on the left."""
    patch = Patch((1, 1), (1, 7), (0, 3), (1, 2))
    cut = patch.cut(torch.ones(2, 3, 1, 4), channels_last)
    assert cut.shape == (2, 1, 6)
    assert not bool(cut.any())


def test_gradients_go_through_windows() -> None:
    layer = torch.randn(1, 1, 5, 4, requires_grad=True)
    layers, cells = WindowedLayers([layer]), torch.tensor([5])
    with torch.no_grad():
        layers.seen(PATCH, cells, torch.tensor([0]))
    for _ in range(2):
        (gradient,) = torch.autograd.grad(layers.seen(PATCH, cells, torch.tensor([0])).sum(), layer)
        assert float(gradient.sum()) == PATCH.size[0] * PATCH.size[1]
    with torch.inference_mode():
        WindowedLayers([torch.zeros(1, 1, 5, 4)]).seen(PATCH, cells, torch.tensor([0]))  # has no version to ask for
