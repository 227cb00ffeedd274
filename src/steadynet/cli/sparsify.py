"""``steadynet sparsify``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from steadynet.cli.before_after import add_new_run, judge_of, show_change
from steadynet.cli.command import Command, use_threads
from steadynet.cli.parsing import Parser, add_settings, given_settings

if TYPE_CHECKING:
    from steadynet.training.sparsification import SparsificationRecord

SPARSIFYING = "sparsifying"  # the owner of the flags of sparsification


def _configure(parser: Parser) -> None:
    from steadynet.plugins import settings_of
    from steadynet.training.sparsification import SparsifySettings

    add_new_run(parser, "sparse")
    add_settings(parser, SPARSIFYING, "settings of sparsification", settings_of(SparsifySettings))


def _run(arguments: argparse.Namespace) -> None:
    from steadynet.cli.display.terminal import progress_bar
    from steadynet.plugins import make
    from steadynet.runs.trained import load_trained
    from steadynet.training.sparsification import SparsifySettings, sparsify_run

    use_threads(arguments)
    trained = load_trained(arguments.run)
    out = arguments.out or f"{trained.run.path}-sparse"
    settings = make(SparsifySettings, given_settings(arguments, SPARSIFYING))
    with progress_bar() as progress:
        task = progress.add_task("sparsifying", total=None, note="")

        def show(layer: str, done: int, rows: int) -> None:
            progress.update(task, completed=done, total=rows, description=f"layer {layer}")

        result = sparsify_run(trained, out, settings, judge=judge_of(arguments), on_row=show)
    show_change(arguments, result, f"{trained.run.path}, sparsified", _described(result), out)


def _described(result: SparsificationRecord) -> str:
    """Say what became of each layer, one line per layer."""
    from steadynet.cli.display.numbers import count_of

    lines = []
    for layer in result.layers:
        kept = layer.rows - layer.changed
        rows = f"; {kept} of {layer.rows} rows have no solution and stay" if kept else ""
        before, after = count_of(layer.before, layer.weights), count_of(layer.after, layer.weights)
        lines.append(f"layer {layer.name}: weights that are not zero: {before} before, {after} after{rows}")
    if result.left:
        lines.append(f"not dense, stay as they are: {', '.join(result.left)}")
    return "\n".join(lines)


COMMAND = Command(
    summary="make dense layers sparse by linear programs",
    description=(
        "Make the dense layers of a trained network sparse, which makes it easier to verify. One linear program per "
        "neuron minimises its weights such that on some validation images it keeps its state and nearly its value. "
        "All other layers stay as they are. The result is a new run; the old one stays as it is."
    ),
    usage="RUN [--out RUN] [--images N] [--delta N] [options]",
    examples=(
        "steadynet sparsify runs/first                                # writes runs/first-sparse",
        "steadynet sparsify runs/first --images 50 --delta 0.05 --out runs/closer",
    ),
    configure=_configure,
    run=_run,
)
