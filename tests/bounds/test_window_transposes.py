"""Windows with channels last, and functions of one cell in runs, against PyTorch's transpose and the plain formulas."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from steadynet.bounds import backward, patches, window_transposes
from steadynet.bounds.crown import propagate
from steadynet.bounds.linear_functions import LinearFunctions
from steadynet.bounds.patches import Matrices, Patch, transposed_on_patches
from steadynet.bounds.relaxation import Relaxation
from steadynet.bounds.substitution import through_relu_in_runs
from steadynet.bounds.window_transposes import has_channels_last, transposed_with_channels_last
from steadynet.graph.operations import Convolution, Interval
from steadynet.graph.rounding import Arithmetic, Execution
from steadynet.graph.translate import graph_of

pairs = st.tuples(st.integers(1, 5), st.integers(1, 5))


@given(
    channels=pairs.map(lambda pair: (pair[0], 2 * pair[1])),
    kernel=pairs,
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    window=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    count=st.sampled_from([0, 1, 17]),
)
def test_both_ways_are_the_transpose(
    channels: tuple[int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    window: tuple[int, int],
    count: int,
) -> None:
    """All numbers are small integers, so nothing rounds, and the results are exactly equal."""
    weight = torch.randint(-4, 5, (*channels, *kernel)).float()
    convolution = Convolution(weight, None, stride, (1, 1), (1, 1), 1)
    kept = Matrices()
    with torch.no_grad():
        for _ in range(2):  # the second time with the weights that were kept
            rows = torch.randint(-4, 5, (count, channels[0], *window)).float()
            expected = F.conv_transpose2d(rows.double(), weight.double(), stride=stride)
            assert torch.equal(transposed_with_channels_last(convolution, rows, kept).double(), expected)
    assert len(kept) == 1


def test_windows_take_the_fast_way_without_gradients_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_transposes, "LEAST_PRODUCTS", 0)
    weight, rows = torch.randn(3, 6, 4, 4, requires_grad=True), torch.randn(2, 3, 3, 3)
    convolution = Convolution(weight, None, (2, 2), (1, 1), (1, 1), 1)
    expected = F.conv_transpose2d(rows, weight, stride=2)
    found = transposed_on_patches(convolution, rows, Matrices())
    gradients = [torch.autograd.grad(one.square().sum(), weight)[0] for one in (found, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)
    with torch.no_grad():
        quick = transposed_on_patches(convolution, rows, Matrices())
        precise = transposed_on_patches(
            Convolution(weight.double(), None, (2, 2), (1, 1), (1, 1), 1), rows.double(), Matrices()
        )
    assert has_channels_last(quick)
    assert not has_channels_last(found)
    assert precise.dtype == torch.float64
    torch.testing.assert_close(quick.double(), precise, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shortest", [0, 1 << 20], ids=["in runs", "all at once"])
def test_what_lies_in_the_padding_is_cleared(monkeypatch: pytest.MonkeyPatch, shortest: int) -> None:
    monkeypatch.setattr(patches, "LEAST_OF_A_RUN", shortest)
    patch = Patch(grid=(4, 3), stride=(2, 3), offset=(3, 2), size=(5, 4))
    cells = torch.tensor([0, 0, 1, 4, 4, 4, 11, 7, 2, 9, 0])
    coefficients = torch.randn(len(cells), 2, 5, 4)
    expected = torch.zeros_like(coefficients)
    for row, cell in enumerate(cells.tolist()):
        for y in range(5):
            for x in range(4):
                if 0 <= cell // 3 * 2 - 3 + y < 6 and 0 <= cell % 3 * 3 - 2 + x < 7:
                    expected[row, :, y, x] = coefficients[row, :, y, x]
    for layout in (torch.contiguous_format, torch.channels_last):
        found = coefficients.clone(memory_format=layout)
        patch.clear_outside((2, 6, 7), found, cells)
        assert torch.equal(found, expected)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["first", "last"])
@pytest.mark.parametrize("owners", [[0] * 9, [0, 0, 0, 0, 1, 1, 1, 2, 2]], ids=["one property", "three"])
def test_a_relu_in_runs_is_the_plain_formula(
    monkeypatch: pytest.MonkeyPatch, layout: torch.memory_format, owners: list[int]
) -> None:
    monkeypatch.setattr(patches, "LEAST_OF_A_RUN", 0)
    torch.manual_seed(0)
    lower = torch.randn(owners[-1] + 1, 2, 5, 4, dtype=torch.float64) - 0.5
    lines = Relaxation.crown(Interval(lower, lower + 1))
    patch = Patch(grid=(3, 4), stride=(2, 1), offset=(1, 1), size=(3, 2))
    cells, owner = torch.tensor([0, 0, 3, 3, 3, 3, 5, 11, 11]), torch.tensor(owners)
    coefficients = torch.randn(9, 2, 3, 2, dtype=torch.float64).to(memory_format=layout)
    functions = LinearFunctions(coefficients, patch, cells)
    with torch.no_grad():
        runs = functions.gather_runs(lines.drawn, owner)
        assert runs is not None
        found, added = through_relu_in_runs(coefficients, runs, proof=True)
    assert len(runs) == (4 if owners[-1] == 0 else 5)
    slope, upper, shift = (
        torch.stack(
            [F.unfold(F.pad(line[[one]], (1, 0, 1, 1)), (3, 2), stride=(2, 1))[0, :, cell] for one, cell in where]
        ).view(coefficients.shape)
        for line in (lines.lower_slope, lines.upper_slope, lines.upper_shift)
        for where in [list(zip(owners, cells.tolist(), strict=True))]
    )
    expected = torch.where(coefficients > 0, coefficients * slope, coefficients * upper)
    torch.testing.assert_close(found, expected)
    sums = (coefficients.clamp_max(0) * shift).sum((1, 2, 3))
    torch.testing.assert_close(added, sums)
    assert (added <= sums).all()


def bounds_of_a_small_network() -> list[Interval]:
    """Bounds of all ReLUs of convolutions whose windows hang over the edges, as proofs for two images."""
    torch.manual_seed(1)
    convolutions = [nn.Conv2d(3, 5, 3, padding=1), nn.Conv2d(5, 6, 4, 2, 1), nn.Conv2d(6, 7, 3, 2, 2)]
    layers = [layer for convolution in convolutions for layer in (convolution, nn.ReLU())]
    network = nn.Sequential(*layers, nn.Conv2d(7, 6, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(150, 4)).eval()
    images = torch.rand(2, 3, 16, 14)
    box, execution = Interval(images - 0.02, images + 0.02), Execution(Arithmetic.FLOAT32, torch.float32)
    with torch.no_grad():
        return propagate(graph_of(network, (3, 16, 14)), box, execution=execution, until_stable=True)[0].relus()


def test_bounds_are_the_same_by_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, ran = bounds_of_a_small_network(), list[Tensor]()
    monkeypatch.setattr(window_transposes, "LEAST_PRODUCTS", 0)
    monkeypatch.setattr(patches, "LEAST_OF_A_RUN", 0)
    monkeypatch.setattr(
        backward,
        "through_relu_in_runs",
        lambda coefficients, *rest: (ran.append(coefficients), through_relu_in_runs(coefficients, *rest))[1],
    )
    fast = bounds_of_a_small_network()
    assert any(map(has_channels_last, ran))
    for one, other in zip(plain, fast, strict=True):
        torch.testing.assert_close(tuple(one), tuple(other), rtol=1e-4, atol=1e-5)
    assert any(known.unstable().any() for known in fast)
