"""The command line: parse, call, show."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from steadynet.errors import UserError
from steadynet.flags import Parser, add_flags, parse

EPILOGUE = """\
first steps:
  steadynet demo                                        two networks, side by side, in minutes
  steadynet train --data digits --method nbc --out runs/first
  steadynet evaluate runs/first --eps 0.1 0.2 0.3
"""


class Command(NamedTuple):
    """One subcommand: what it is for, its arguments, and what it does."""

    help: str
    configure: Callable[[Parser], None]
    run: Callable[[argparse.Namespace], None]


def main(arguments: list[str] | None = None) -> int:
    """Run one command; 0 when it went well, 2 for a mistake of the user's, 130 when interrupted."""
    from steadynet.interruption import InterruptedByUserError

    try:
        command, parsed = _parse(sys.argv[1:] if arguments is None else arguments)
        command.run(parsed)
    except InterruptedByUserError as stop:
        _say(str(stop))
        return 130
    except UserError as error:
        _say(f"error: {error}")
        return 2
    except KeyboardInterrupt:
        _say("interrupted")
        return 130
    except BrokenPipeError:
        return 0
    return 0


def _say(line: str) -> None:
    sys.stderr.write(f"steadynet: {line}\n")


def _parse(arguments: list[str]) -> tuple[Command, argparse.Namespace]:
    from steadynet import __version__

    parser = Parser(prog="steadynet", description="Train neural networks that can be proved robust.", epilog=EPILOGUE)
    parser.add_argument("--version", action="version", version=f"steadynet {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    asked = next((word for word in arguments if not word.startswith("-")), None)
    chosen = parser
    for name, command in COMMANDS.items():
        subparser = subparsers.add_parser(name, help=command.help, description=f"{command.help}.")
        if name == asked:  # only the command asked for needs its flags, and what they import
            command.configure(subparser)
            chosen = subparser
    if asked is None and not arguments:
        parser.print_help()
        raise SystemExit(0)
    if asked is not None and asked not in COMMANDS:
        from steadynet.errors import UnknownNameError

        raise UnknownNameError("command", asked, COMMANDS)
    parsed = parse(parser, chosen, arguments)
    return COMMANDS[parsed.command], parsed


def _configure_train(parser: Parser) -> None:
    from steadynet import objectives
    from steadynet.plugins import settings_of
    from steadynet.settings import TrainingSettings

    parser.add_argument("--out", metavar="RUN", help="the run directory to write")
    parser.add_argument("--config", metavar="FILE.toml", help="settings from a file: every flag is a key")
    parser.add_argument("--resume", action="store_true", help="go on with the run in --out")
    parser.add_argument("--overwrite", action="store_true", help="replace the run in --out")
    add_flags(parser.add_argument_group("the training"), settings_of(TrainingSettings))
    seen: dict[str, Any] = {}
    for name, plugin in sorted(objectives.available().items()):
        for entry in settings_of(plugin):
            known = seen.setdefault(entry.name, (entry, []))
            known[1].append(name)
    group = parser.add_argument_group("the methods' own settings")
    add_flags(
        group, [dataclasses.replace(entry, help=f"{', '.join(names)}: {entry.help}") for entry, names in seen.values()]
    )


def _train(arguments: argparse.Namespace) -> None:
    from steadynet.display import TrainingDisplay, WithTensorBoard, console
    from steadynet.run_directory import RunDirectory, read_toml
    from steadynet.settings import resolve
    from steadynet.training import Observer, resume, train

    given = {
        key: value
        for key, value in vars(arguments).items()
        if key not in ("command", "out", "config", "resume", "overwrite")
    }
    if arguments.config:
        file = read_toml(Path(arguments.config))
        file.pop("input", None)  # what the data decided, in the configuration of a run
        given = file | given
    if not arguments.out:
        raise UserError("--out says where to write the run: --out runs/first")
    run = RunDirectory(Path(arguments.out))
    going_on = arguments.resume and run.config.is_file()
    config = run.read_config() if going_on else {}
    if going_on:
        _check_unchanged(given, config)
    if going_on and run.weights.is_file():
        console.print(f"{run.path} is finished")
        return
    settings = None if going_on else resolve(given)
    with TrainingDisplay() as display:
        wants_events = config.get("tensorboard") if settings is None else settings.tensorboard
        observer: Observer = WithTensorBoard(display, run) if wants_events else display
        if settings is None:
            machine = {key: given[key] for key in ("device", "threads") if key in given}
            resume(run.path, observer=observer, **machine)
        else:
            _announce(settings)
            train(settings, run.path, overwrite=arguments.overwrite, observer=observer)
    console.print(f"trained: {run.path}\nnext:    steadynet evaluate {run.path} --eps 0.1 0.2 0.3", soft_wrap=True)


def _check_unchanged(given: dict[str, Any], config: dict[str, Any]) -> None:
    from steadynet.settings import resolve

    before = {key: value for key, value in config.items() if key != "input"}
    machine = {"device", "threads"}
    after = resolve(before | {key: value for key, value in given.items() if key not in machine}).as_config()
    changed = sorted(key for key in after if after[key] != resolve(before).as_config().get(key))
    if changed:
        raise UserError(f"--resume goes on with the run's own settings, but {', '.join(changed)} would change")


def _announce(settings: Any) -> None:
    from steadynet.display import console

    for name, values in settings.methods.items():
        shown = "  ".join(f"{key} {value}" for key, value in values.items() if value is not None)
        if shown:
            console.print(f"{name}: {shown}", soft_wrap=True)


def _configure_evaluate(parser: Parser) -> None:
    parser.add_argument("run", metavar="RUN", help="a finished run directory")
    parser.add_argument("--eps", nargs="+", metavar="RADIUS", help="radii; the one trained for unless given")
    parser.add_argument("--pgd-steps", type=_count, default=100, metavar="N", help="steps of the attack [100]")
    parser.add_argument("--restarts", type=_count, default=1, metavar="N", help="restarts of the attack [1]")
    parser.add_argument("--images", type=_count, metavar="N", help="only the first N test images")
    parser.add_argument("--data", metavar="DATA", help="another data set than the run's")
    parser.add_argument("--threads", type=_count, metavar="N", help="CPU threads")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number above 0")
    return int(text)


def _evaluate(arguments: argparse.Namespace) -> None:
    import torch

    from steadynet import data
    from steadynet.display import console, progress_bar, show_evaluation
    from steadynet.evaluation import evaluate
    from steadynet.networks import check_classifies
    from steadynet.run_directory import write_json
    from steadynet.settings import parse_radius
    from steadynet.trained import load_trained

    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    trained = load_trained(arguments.run)
    radii = [parse_radius(text) for text in arguments.eps or [trained.config["eps"]]]
    dataset = data.load(arguments.data) if arguments.data else trained.data()
    check_classifies(trained.network, dataset.image_shape, dataset.class_count)
    images = dataset.test.subset(torch.arange(min(arguments.images or len(dataset.test), len(dataset.test))))
    torch.manual_seed(0)
    with progress_bar("images") as progress:
        task = progress.add_task("attacking", total=len(images) * len(radii), note="")
        result = evaluate(
            trained.network,
            images,
            radii,
            pgd_steps=arguments.pgd_steps,
            restarts=arguments.restarts,
            on_images=lambda count: progress.advance(task, count),
        )
    write_json(trained.run.evaluation, result)
    if arguments.json:
        sys.stdout.write(json.dumps(result, indent=2) + "\n")
    else:
        show_evaluation(str(trained.run.path), result)
        console.print(f"written: {trained.run.evaluation}", soft_wrap=True)


def _configure_data(parser: Parser) -> None:
    parser.add_argument("action", choices=["list", "fetch", "where"], help="what there is, fetch it, or where it lies")
    parser.add_argument("names", nargs="*", metavar="NAME", help="data sets to fetch")


def _data(arguments: argparse.Namespace) -> None:
    from steadynet import data
    from steadynet.display import console, table
    from steadynet.plugins import choose

    known = data.available()
    if arguments.action == "where":
        console.print(str(data.where()), soft_wrap=True)
    elif arguments.action == "list":
        rows = [
            [name, plugin.summary, "yes" if plugin().is_available() else "no", plugin.licence]
            for name, plugin in sorted(known.items())
        ]
        table("Data sets", ["name", "what it is", "here", "licence"], rows)
    elif not arguments.names:
        raise UserError(f"name what to fetch: {', '.join(sorted(known))}")
    else:
        for plugin in [choose("data set", name, known) for name in arguments.names]:
            console.print(f"{plugin.name}: {plugin().fetch()}", soft_wrap=True)


def _configure_list(parser: Parser) -> None:
    parser.add_argument("what", choices=["methods", "models", "data"])


def _list(arguments: argparse.Namespace) -> None:
    from steadynet import objectives
    from steadynet.display import table
    from steadynet.networks import ARCHITECTURES
    from steadynet.plugins import settings_of

    if arguments.what == "data":
        _data(argparse.Namespace(action="list", names=[]))
    elif arguments.what == "models":
        rows = []
        for name, entry in ARCHITECTURES.items():
            count = sum(parameter.numel() for parameter in entry.build().parameters())
            rows.append([name, entry.summary, "×".join(map(str, entry.image_shape)), f"{count:,}"])
        table("Models", ["name", "layers", "images", "parameters"], rows, "or your own: --model file.py:factory")
    else:
        for name, plugin in sorted(objectives.available().items()):
            entries = [[entry.name, entry.default, entry.help] for entry in settings_of(plugin)]
            note = "  (a regulariser: joins any other, as in trades+nbc)" if plugin.is_regulariser else ""
            table(f"{name}: {plugin.summary}{note}", ["setting", "default", "meaning"], entries or [["–", "", ""]])


def _configure_demo(parser: Parser) -> None:
    parser.add_argument("--out", default="demo", metavar="DIR", help="where the two runs are written [demo]")
    parser.add_argument("--epochs", type=_count, default=20, metavar="N", help="epochs a network [20]")


def _demo(arguments: argparse.Namespace) -> None:
    from steadynet.demo import RADII, run_demo
    from steadynet.display import TrainingDisplay, console, percent, table

    with TrainingDisplay() as display:

        def observer(method: str) -> TrainingDisplay:
            display.name = f"{method}: "
            return display

        results = run_demo(Path(arguments.out), observer, arguments.epochs)
    methods = list(results)
    rows = [["accuracy", *(percent(results[method]["accuracy"]) for method in methods)]]
    for index, radius in enumerate(RADII):
        found = [results[method]["radii"][index] for method in methods]
        rows.append([f"PGD-20 accuracy at ε {radius}", *(percent(row["pgd_accuracy"]) for row in found)])
        rows.append([f"stable neurons (ibp) at ε {radius}", *(percent(row["stable_share_ibp"]) for row in found)])
    table("The same network, trained twice (1,000 test images)", ["", *methods], rows)
    console.print(
        "Every unstable neuron doubles the work of a proof: the NBC network has few of them.\n"
        f"The runs are in {arguments.out}/; next: steadynet train --help",
        soft_wrap=True,
    )


COMMANDS = {
    "demo": Command("train two networks on embedded data and show them side by side", _configure_demo, _demo),
    "train": Command("train a network", _configure_train, _train),
    "evaluate": Command("test accuracy, accuracy under attack and stable neurons", _configure_evaluate, _evaluate),
    "data": Command("list, fetch or locate data sets", _configure_data, _data),
    "list": Command("methods, models and data sets, with their settings", _configure_list, _list),
}
