"""Trained networks with hidden counterexamples, after the recipe of SoundnessBench (Zhou et al., 2024).

Each image has a hidden input near a corner of its box. Training makes the network give this input another class with
some margin, and at the same time keeps the label at every point that PGD reaches. The points that PGD found in the last
steps are kept in a window and trained on again, so that the network does not forget them. At the end an attack with
many restarts must miss every hidden input that is taken.

So that training is short, it begins with one ReLU per hidden input that is active at this input, and at no random point
of the box.
"""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from steadynet.attacks.pgd import find_counterexamples, maximise_cross_entropy
from steadynet.attacks.region import InputRegion
from steadynet.attacks.schedule import StepSchedule
from steadynet.verification.self_test.architectures import IMAGE, Residual
from steadynet.verification.self_test.known import ConstructionError, Family, KnownInstance, Truth
from steadynet.verification.self_test.random_numbers import uniform
from steadynet.verification.self_test.torch_instance import KnownBox, network_instance, refutes

IMAGES, CLASSES, HIDDEN_UNITS = 4, 3, 12
SAMPLES = 1000  # random points at which the ReLU of a hidden input must be inactive
STEPS = 60  # of training
WINDOW = 20  # steps whose attacked points are trained on again
EDGE = 0.98  # each coordinate of a hidden input is at least this share of ε away from the image
MARGIN = 0.05  # by which hidden inputs shall be misclassified
RESTARTS, ATTACK_STEPS = 200, 40  # of the attack that must miss a hidden input


def _body(architecture: str) -> nn.Sequential:
    """Return the layers below the last hidden layer, which end with flat features."""
    layers: dict[str, list[nn.Module]] = {
        "dense": [nn.Flatten(), nn.Linear(25, 40), nn.ReLU()],
        "convolutional": [nn.Conv2d(1, 6, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(6, 10, 2), nn.ReLU()],
        "residual": [
            nn.Conv2d(1, 4, 3, stride=2, padding=1),
            nn.ReLU(),
            Residual(nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 1))),
            nn.ReLU(),
        ],
        "max pool": [nn.Conv2d(1, 8, 2), nn.ReLU(), nn.MaxPool2d(2)],
        "average pool": [nn.Conv2d(1, 8, 2), nn.ReLU(), nn.AvgPool2d(2)],
    }
    return nn.Sequential(*layers[architecture], nn.Flatten())


class _Training:
    """One network, images of class 0 in their boxes, and a hidden input of each box with its wrong label."""

    def __init__(self, architecture: str) -> None:
        self.body = _body(architecture)
        images, radius = torch.rand(IMAGES, *IMAGE), uniform(0.1, 0.4)
        self.images, self.labels = images, torch.zeros(IMAGES, dtype=torch.long)
        self.region, self.step_size = InputRegion.around(images, radius, clip=False), radius / 3
        signs = torch.where(torch.rand_like(images) < 0.5, -1.0, 1.0)
        distance = EDGE + (1 - EDGE) * torch.rand_like(images)
        self.hidden = self.region.project(images + signs * distance * radius)
        self.wrong_labels = torch.randint(1, CLASSES, (IMAGES,))
        with torch.no_grad():
            features = self.body(images).shape[1]
            self.last_hidden, self.scores = nn.Linear(features, HIDDEN_UNITS), nn.Linear(HIDDEN_UNITS, CLASSES)
            self.scores.weight.mul_(0.2)
            self.scores.bias.copy_(torch.tensor([1.0, 0.0, 0.0]))
            for row in range(IMAGES):
                self._set_detector(row)
        self.network = nn.Sequential(*self.body, self.last_hidden, nn.ReLU(), self.scores)

    def _set_detector(self, row: int) -> None:
        """Make one ReLU 1 at a hidden input and 0 at random points: a linear discriminant of the features."""
        box = self.region[torch.full((SAMPLES,), row)]
        corners = torch.where(torch.rand_like(box.lower) < 0.5, box.lower, box.upper)
        samples = self.body(torch.cat([box.sample(), corners])).double()
        target, center = self.body(self.hidden[row : row + 1]).double()[0], samples.mean(0)
        covariance = (samples - center).T.cov() + 1e-6 * torch.eye(len(center), dtype=torch.float64)
        direction = torch.linalg.solve(covariance, target - center)
        top, others = float(direction @ target), float((samples @ direction).max())
        if not top > others:  # training alone has to hide this one
            return
        threshold = others + 0.5 * (top - others)
        self.last_hidden.weight[row] = (direction / (top - threshold)).float()
        self.last_hidden.bias[row] = -threshold / (top - threshold)
        self.scores.weight[:, row] = 0.0
        self.scores.weight[self.wrong_labels[row], row] = 1.5

    def run(self) -> None:
        """Train with Adam; both losses count in every step."""
        optimiser = torch.optim.Adam(self.network.parameters(), lr=1e-3)
        window: list[Tensor] = []
        for _ in range(STEPS):
            window = [*window, self._attacked()][-WINDOW:]
            points, labels = torch.cat(window), self.labels.repeat(len(window))
            loss = F.cross_entropy(self.network(points), labels) + self._hidden_loss()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        self.network.eval().requires_grad_(False)

    def _hidden_loss(self) -> Tensor:
        """Return by how much the hidden inputs fall short of their wrong label and its margin."""
        scores = self.network(self.hidden)
        return F.relu(scores[:, 0] - scores.gather(1, self.wrong_labels[:, None])[:, 0] + MARGIN).mean()

    def _attacked(self) -> Tensor:
        """Return one end of PGD per image."""
        start, schedule = self.region.sample(), StepSchedule.equal(8, self.step_size)
        return maximise_cross_entropy(self.network, self.labels, self.region, start, schedule)

    def hidden_boxes(self) -> list[KnownBox]:
        """Return the boxes whose hidden input is misclassified, and missed by the attack with many restarts."""
        rows = torch.arange(IMAGES).repeat(RESTARTS)  # all restarts in one batch
        found, _ = find_counterexamples(
            self.network, self.images[rows], self.labels[rows], self.region[rows], steps=ATTACK_STEPS
        )
        found = found.view(RESTARTS, IMAGES).any(0)
        return [
            KnownBox(self.region.lower[row], self.region.upper[row], Truth.VIOLATED, self.hidden[row])
            for row in range(IMAGES)
            if not found[row] and refutes(self.network, self.hidden[row])
        ]


def trained(architecture: str) -> KnownInstance:
    """A network trained until its hidden inputs are misclassified and an attack misses them."""
    training = _Training(architecture)
    training.run()
    boxes = training.hidden_boxes()
    if not boxes:
        raise ConstructionError
    return network_instance(training.network, boxes)


ARCHITECTURES = ("dense", "convolutional", "residual", "max pool", "average pool")
FAMILY = Family(
    "trained",
    {f"trained, {name}": partial(trained, name) for name in ARCHITECTURES},
    share=0.2,
)
