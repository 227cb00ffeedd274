"""``steadynet export``."""

from __future__ import annotations

import argparse
from pathlib import Path

from steadynet.cli.command import Command, positive_seconds
from steadynet.cli.parsing import Parser
from steadynet.cli.selection import add_selection, select

WRITTEN = """\
what is written:
  DIR/model.onnx            the network with its normalisation, for any batch size, checked with ONNX Runtime
  DIR/vnnlib/1.0/*.vnnlib   one property per test image and radius: no other class reaches the label's score
  DIR/vnnlib/2.0/*.vnnlib   the same properties in VNN-LIB 2.0
  DIR/instances.csv         lines of network,property,time-out as VNN-COMP's tools read them (VNN-LIB 1.0)
  DIR/instances-2.0.csv     the same with the properties in VNN-LIB 2.0
  DIR/export.toml           what was exported

An earlier export in DIR is replaced. A folder with other files is left alone.
"""


def _configure(parser: Parser) -> None:
    add_selection(parser, run_flag="--run-out")
    parser.add_argument("--out", required=True, metavar="DIR", help="the folder to write")
    parser.add_argument(
        "--timeout",
        type=positive_seconds,
        default=60.0,
        metavar="SECONDS",
        help="the time-out that instances.csv gives each property (default: 60)",
    )


def _run(arguments: argparse.Namespace) -> None:
    from steadynet.cli.display.terminal import console, progress_bar
    from steadynet.interchange.export import ExportFolder, ExportOrigin, RobustnessProperties, export
    from steadynet.interchange.vnnlib.files import VERSIONS

    ExportFolder(Path(arguments.out)).check_free()  # first, before data is loaded
    chosen = select(arguments)
    test = chosen.dataset.test
    properties = RobustnessProperties(
        test.pixels(chosen.index),
        test.labels[chosen.index],
        chosen.index.tolist(),
        chosen.radii,
        chosen.dataset.class_count,
    )
    origin = ExportOrigin(chosen.trained.run.path.resolve().name, chosen.data, arguments.per_class)
    with progress_bar() as progress:
        task = progress.add_task("exporting", total=len(properties), note="")
        folder = export(
            chosen.trained.network,
            properties,
            arguments.out,
            timeout=arguments.timeout,
            origin=origin,
            on_property=lambda: progress.advance(task),
        )
    versions = " and ".join(VERSIONS)
    console.print(
        f"written: {folder.path}: {folder.model.name}, {len(properties)} properties as VNN-LIB {versions}, and "
        + " and ".join(folder.instances(version).name for version in VERSIONS),
        soft_wrap=True,
    )


COMMAND = Command(
    summary="write a network and its properties as ONNX and VNN-LIB",
    description=(
        "Write a trained network as an ONNX file and its robustness properties as VNN-LIB files, for other verifiers."
    ),
    usage="NETWORK --out DIR [--eps RADIUS ...] [--per-class N] [options]",
    examples=("steadynet export runs/first --eps 0.1 --per-class 10 --out exported",),
    configure=_configure,
    run=_run,
    details=WRITTEN,
)
