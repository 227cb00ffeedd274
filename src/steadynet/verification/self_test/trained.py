"""Trained networks with hidden counterexamples, by the recipe of SoundnessBench (Zhou et al., 2024).

Each image has a hidden input near a corner of its box. Training makes the network give this input another class with
some margin, and at the same time keeps the label at every point that PGD reaches. The points that PGD found in the last
steps are kept in a window and trained on again, so that the network does not forget them. At the end an attack with many
restarts must miss every hidden input that is taken.
"""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from steadynet.attacks.pgd import descend, find_counterexamples
from steadynet.attacks.region import InputRegion
from steadynet.verification.self_test.architectures import IMAGE, Residual
from steadynet.verification.self_test.known import ConstructionError, Family, KnownInstance, Truth
from steadynet.verification.self_test.random_numbers import uniform
from steadynet.verification.self_test.torch_instance import KnownBox, network_instance, refutes

IMAGES, CLASSES = 4, 3
STEPS = 400  # of training
WINDOW = 40  # steps whose attacked points are trained on again
EDGE = 0.98  # each coordinate of a hidden input is at least this share of ε away from the image
MARGIN = 0.05  # by which hidden inputs shall be misclassified
RESTARTS, ATTACK_STEPS = 30, 40  # of the attack that must miss a hidden input


def _network(architecture: str) -> nn.Sequential:
    """Return an untrained network with room to remember the hidden inputs."""
    if architecture == "dense":
        return nn.Sequential(nn.Flatten(), nn.Linear(25, 24), nn.ReLU(), nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, 3))
    if architecture == "residual":
        block = Residual(nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 1)))
        return _with_head([nn.Conv2d(1, 4, 3, stride=2, padding=1), nn.ReLU(), block, nn.ReLU()])
    if architecture == "max pool":
        return _with_head([nn.Conv2d(1, 4, 2), nn.ReLU(), nn.MaxPool2d(2)])
    if architecture == "average pool":
        return _with_head([nn.Conv2d(1, 6, 2), nn.ReLU(), nn.AvgPool2d(2)])
    return _with_head([nn.Conv2d(1, 4, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(4, 6, 2), nn.ReLU()])


def _with_head(layers: list[nn.Module]) -> nn.Sequential:
    body = nn.Sequential(*layers, nn.Flatten())
    with torch.no_grad():
        features = body(torch.zeros(1, *IMAGE)).shape[1]
    return nn.Sequential(*body, nn.Linear(features, 16), nn.ReLU(), nn.Linear(16, CLASSES))


class _Training:
    """One network, its images, and their hidden inputs."""

    def __init__(self, architecture: str) -> None:
        self.network = _network(architecture)
        self.images, self.radius = torch.rand(IMAGES, *IMAGE), uniform(0.1, 0.2)
        self.labels = torch.randint(0, CLASSES, (IMAGES,))
        self.wrong_labels = (self.labels + torch.randint(1, CLASSES, (IMAGES,))) % CLASSES
        self.region = InputRegion.around(self.images, self.radius, clip=False)
        signs = torch.where(torch.rand_like(self.images) < 0.5, -1.0, 1.0)
        distance = EDGE + (1 - EDGE) * torch.rand_like(self.images)
        self.hidden = self.region.project(self.images + signs * distance * self.radius)

    def run(self) -> None:
        """Train with Adam; both losses count in every step."""
        optimiser = torch.optim.Adam(self.network.parameters(), lr=5e-3)
        rate = torch.optim.lr_scheduler.OneCycleLR(optimiser, 1e-2, total_steps=STEPS)
        window: list[Tensor] = []
        for _ in range(STEPS):
            window = [*window, self._attacked()][-WINDOW:]
            points = torch.cat(window)
            loss = F.cross_entropy(self.network(points), self.labels.repeat(len(window))) + self._hidden_loss()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            rate.step()

    def _hidden_loss(self) -> Tensor:
        """Return by how much the hidden inputs fall short of their wrong label and its margin."""
        scores = self.network(self.hidden)
        right, wrong = (scores.gather(1, labels[:, None]) for labels in (self.labels, self.wrong_labels))
        return F.relu(right - wrong + MARGIN).mean()

    def _attacked(self) -> Tensor:
        """Return one end of PGD per image."""
        return descend(
            lambda points: -F.cross_entropy(self.network(points), self.labels, reduction="none"),
            self.region, self.region.sample(), steps=8, step_size=self.radius / 4,
        )  # fmt: skip

    def hidden_boxes(self) -> list[KnownBox]:
        """Return the boxes whose hidden input is misclassified, and missed by the attack with many restarts."""
        found, _ = find_counterexamples(
            self.network, self.images, self.labels, self.region, steps=ATTACK_STEPS, restarts=RESTARTS
        )
        return [
            KnownBox(
                self.region.lower[row], self.region.upper[row], Truth.VIOLATED, self.hidden[row], int(self.labels[row])
            )
            for row in range(IMAGES)
            if not found[row] and refutes(self.network, self.hidden[row], int(self.labels[row]))
        ]


def trained(architecture: str) -> KnownInstance:
    """A network trained until its hidden inputs are misclassified and an attack misses them."""
    training = _Training(architecture)
    training.run()
    training.network.eval().requires_grad_(False)
    boxes = training.hidden_boxes()
    if not boxes:
        raise ConstructionError
    return network_instance(training.network, boxes)


ARCHITECTURES = ("dense", "convolutional", "residual", "max pool", "average pool")
FAMILY = Family(
    "hidden by training",
    {f"trained, {name}": partial(trained, name) for name in ARCHITECTURES},
    short=1,
    long=20,
)
