"""Train a small network on MNIST with NBC, then prove that it is robust.

    python examples/mnist.py
    python examples/mnist.py --data digits --epochs 1    # built-in images, nothing is downloaded

The first run downloads MNIST. The defaults take a few minutes on a laptop.
"""

from __future__ import annotations

import argparse
import sys

import torch

from steadynet import UserError, evaluate, load_trained, resolve, train, verify


def main(words: list[str] | None = None) -> None:
    """Train, measure under attack, and verify."""
    parser = argparse.ArgumentParser(description="Train on MNIST with NBC, then verify.")
    parser.add_argument("--data", default="mnist", help="the data set (default: mnist)")
    parser.add_argument("--method", default="nbc", help="the training method (default: nbc)")
    parser.add_argument("--eps", type=float, default=0.1, help="the radius in pixel values (default: 0.1)")
    parser.add_argument("--epochs", type=int, default=2, help="passes over the training images (default: 2)")
    parser.add_argument("--train-images", type=int, help="train on so many images only (default: all)")
    parser.add_argument("--per-class", type=int, default=2, help="test images of each class to verify (default: 2)")
    parser.add_argument("--timeout", type=float, default=10.0, help="seconds for each proof (default: 10)")
    parser.add_argument("--out", default="runs/mnist", help="the run directory (default: runs/mnist)")
    given = parser.parse_args(words)

    values = {"data": given.data, "model": "M1", "method": given.method, "eps": given.eps, "epochs": given.epochs}
    if given.train_images:
        values["train_images"] = given.train_images
    if given.method == "nbc":
        values["search"] = "fast"
    try:
        run = train(resolve(values), given.out, overwrite=True, progress=True)
        trained = load_trained(run.path)
        test = trained.data().test

        torch.manual_seed(0)
        some = test.subset(torch.arange(min(500, len(test))))
        measured = evaluate(trained, some, given.eps, pgd_steps=20, progress=True)
        attacked = measured.radii[0].pgd_accuracy
        print(f"accuracy {measured.accuracy:.1%}, under attack at ε {given.eps:g}: {attacked:.1%}")

        chosen = test.subset(test.first_of_each_class(given.per_class))
        results = verify(trained, chosen, eps=given.eps, timeout=given.timeout, progress=True)
    except UserError as error:
        sys.exit(f"mnist.py: {error}")
    print(results)


if __name__ == "__main__":
    main()
