"""two-inputs.svg: where the ReLUs of a network with two inputs change their sign, trained without NBC and with it.

python docs/figures/two_inputs.py: a minute or two, the same on every run of the same PyTorch. The networks of the first
seed are drawn; the numbers that it prints are means over all seeds.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from steadynet import NBC, InputRegion
from steadynet.bounds import interval_bounds
from steadynet.networks.preactivations import activations
from svg import BLUE, GREEN, GREY, INK, ORANGE, Drawing, Point

EPS, BETA, WIDTH, STEPS, SEEDS = 0.08, 1.0, 20, 500, 5
CENTRES, SPREAD, POINTS = ((0.2, 0.25), (0.75, 0.2), (0.5, 0.8)), 0.03, 150
GRID, SIDE = 150, 420


def clusters() -> tuple[Tensor, Tensor]:
    """Three clusters in [0, 1]², a class each."""
    labels = torch.arange(POINTS) % len(CENTRES)
    return (torch.tensor(CENTRES)[labels] + SPREAD * torch.randn(POINTS, 2)).clamp(0, 1), labels


def trained(images: Tensor, labels: Tensor, beta: float, seed: int) -> nn.Module:
    """A small network; β = 0 is natural training."""
    torch.manual_seed(seed)
    network = nn.Sequential(
        nn.Linear(2, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, len(CENTRES))
    )
    consistency = NBC(eps=EPS, beta=beta)
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 2e-2, total_steps=STEPS)
    for _ in range(STEPS):
        loss = F.cross_entropy(network(images), labels)
        if beta:
            loss = loss + consistency(network, images)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    return network.eval()


def preactivations(network: nn.Module, points: Tensor) -> Tensor:
    """Every ReLU's input at these points: (points, neurons)."""
    with torch.no_grad():
        return torch.cat(activations(network, points).preactivations, 1)


def unstable(network: nn.Module, images: Tensor) -> Tensor:
    """How many ReLUs a box has whose sign intervals leave open."""
    with torch.no_grad():
        stable = interval_bounds(network, InputRegion.around(images, EPS)).stable()
    return (~torch.cat(stable, 1)).sum(1)


def crossings(values: Tensor) -> list[tuple[Point, Point]]:
    """The zero line of one neuron on the grid (GRID, GRID), by marching squares, in [0, 1]²."""
    found: list[tuple[Point, Point]] = []
    mixed = (values > 0).float()
    corners = mixed[:-1, :-1] + mixed[1:, :-1] + mixed[:-1, 1:] + mixed[1:, 1:]
    for row, column in ((corners > 0) & (corners < 4)).nonzero().tolist():
        around = [(row, column), (row, column + 1), (row + 1, column + 1), (row + 1, column)]
        ends = []
        for one, other in zip(around, [*around[1:], around[0]], strict=True):
            low, high = float(values[one]), float(values[other])
            if (low > 0) != (high > 0):
                share = low / (low - high)
                ends.append(tuple((a + share * (b - a)) / (GRID - 1) for a, b in zip(one, other, strict=True)))
        found += [(ends[place], ends[place + 1]) for place in range(0, len(ends) - 1, 2)]  # (y, x) pairs
    return found


def draw(drawing: Drawing, left: float, title: str, network: nn.Module, images: Tensor, labels: Tensor) -> None:
    """One panel."""
    top = 74.0

    def place(x: float, y: float) -> Point:
        return left + SIDE * x, top + SIDE * (1 - y)

    axis = torch.linspace(0, 1, GRID)
    grid = torch.stack(torch.meshgrid(axis, axis, indexing="xy"), -1)  # [row y, column x] = (x, y)
    values = preactivations(network, grid.reshape(-1, 2)).T.reshape(-1, GRID, GRID)
    counts = unstable(network, images)
    drawing.text((left + SIDE / 2, 26), title, anchor="middle", bold=True)
    mean = f"unstable ReLUs a box: {counts.float().mean():.1f} of {2 * WIDTH}"
    drawing.text((left + SIDE / 2, 52), mean, anchor="middle")
    for neuron in values:
        pieces = [(place(x, y), place(x2, y2)) for (y, x), (y2, x2) in crossings(neuron)]
        drawing.segments(pieces, GREY, 1.1)
    for point, label in zip(images.tolist(), labels.tolist(), strict=True):
        drawing.dot(place(*point), 3, (BLUE, ORANGE, GREEN)[label])
    for index in range(len(CENTRES)):
        (x, y), size = images[index].tolist(), 2 * EPS * SIDE
        drawing.box(place(x - EPS, y + EPS), (size, size), stroke=INK, width=2.5)
        drawing.text(place(x + EPS + 0.012, y), str(int(counts[index])), bold=True)
    drawing.box((left, top), (SIDE, SIDE), stroke=GREY)


def main() -> None:
    """Train a pair of networks a seed, count, and draw the first pair side by side."""
    torch.manual_seed(0)
    images, labels = clusters()
    drawing = Drawing(900, 550, "Zero lines of the ReLU inputs of two networks with two inputs")
    for left, beta, title in ((15.0, 0.0, "natural"), (465.0, BETA, "with NBC")):
        networks = [trained(images, labels, beta, seed) for seed in range(SEEDS)]
        right = [float((network(images).argmax(1) == labels).float().mean()) for network in networks]
        counts = [float(unstable(network, images).float().mean()) for network in networks]
        print(f"{title}: accuracy {sum(right) / SEEDS:.3f}, unstable a box {sum(counts) / SEEDS:.2f}, by seed {counts}")
        draw(drawing, left, title, networks[0], images, labels)
    drawing.text(
        (450, 530),
        f"grey: where a ReLU changes its sign · box: ε = {EPS}, with its number of unstable ReLUs",
        anchor="middle",
        colour=GREY,
    )
    drawing.save("two-inputs.svg")


if __name__ == "__main__":
    main()
