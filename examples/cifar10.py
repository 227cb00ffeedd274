"""Train a convolutional network on CIFAR-10: first with an adversarial method, then with NBC added, and verify it.

    python examples/cifar10.py
    python examples/cifar10.py --data digits --epochs 1    # built-in images, nothing is downloaded

The first run downloads CIFAR-10. The defaults train on a part of it and take some minutes on a laptop. Radii on
CIFAR-10 are small and are written as fractions of 255.
"""

from __future__ import annotations

import argparse
import sys

from steadynet import UserError, load_trained, resolve, train, verify


def main(words: list[str] | None = None) -> None:
    """Train in two phases, then verify at two radii."""
    parser = argparse.ArgumentParser(description="Train on CIFAR-10 with Madry's method and NBC, then verify.")
    parser.add_argument("--data", default="cifar10", help="the data set (default: cifar10)")
    parser.add_argument("--model", default="C1", help="the network: C1, C2 or C3 (default: C1)")
    parser.add_argument("--eps", default="2/255", help="the radius to train for (default: 2/255)")
    parser.add_argument("--epochs", type=int, default=2, help="epochs of each of the two phases (default: 2)")
    parser.add_argument("--train-images", type=int, default=10_000, help="training images to use (default: 10000)")
    parser.add_argument("--per-class", type=int, default=1, help="test images of each class to verify (default: 1)")
    parser.add_argument("--timeout", type=float, default=10.0, help="seconds for each proof (default: 10)")
    parser.add_argument("--out", default="runs/cifar10", help="the run directory (default: runs/cifar10)")
    given = parser.parse_args(words)

    try:
        settings = resolve(
            {
                "data": given.data,
                "model": given.model,
                "phases": f"madry:{given.epochs} madry+nbc:{given.epochs}",
                "eps": given.eps,
                "search": "fast",
                "train_images": given.train_images,
            }
        )
        run = train(settings, given.out, overwrite=True, progress=True)
        trained = load_trained(run.path)
        test = trained.data().test
        chosen = test.subset(test.first_of_each_class(given.per_class))
        found = verify(trained, chosen, eps=["1/255", given.eps], timeout=given.timeout, progress=True)
    except UserError as error:
        sys.exit(f"cifar10.py: {error}")
    for results in found.values():
        print(results)


if __name__ == "__main__":
    main()
