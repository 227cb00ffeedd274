"""Fine-tune a changed network with the method of its run, and write it as a new run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from steadynet import objectives
from steadynet.runs.config import RunConfig
from steadynet.runs.directory import RunDirectory
from steadynet.runs.trained import TrainedNetwork
from steadynet.training.distributed.process_group import join_process_group
from steadynet.training.figures import copy_sources
from steadynet.training.loop import run_phases
from steadynet.training.notation import parse_phases
from steadynet.training.observer import Observer, SilentObserver
from steadynet.training.settings import TrainingSettings, resolve
from steadynet.training.state import LINE_RATE, assemble, save


def fine_tuning_settings(
    config: RunConfig, *, epochs: int, lr: float | None = None, sources: Path | None = None, **changes: Any
) -> TrainingSettings:
    """Return the settings of a fine-tuning: those of a run, with its last method at full ε from the first epoch on.

    Args:
        config: The configuration of the run.
        epochs: How many epochs to fine-tune.
        lr: The learning rate; that of the run unless given.
        sources: The folder in which the run keeps copies of the user's own files of methods.
        **changes: Other settings to change.

    Raises:
        UserError: A setting makes no sense.

    >>> from steadynet.runs.config import InputFacts
    >>> trained = resolve({"phases": "natural:2 nbc:3", "beta": 2.0, "warmup": 1.0})
    >>> config = RunConfig(trained.as_config(), InputFacts((1, 8, 8), 10))
    >>> settings = fine_tuning_settings(config, epochs=4, lr=1e-3)
    >>> settings.plan, settings.warmup, settings.methods["nbc"]["beta"]
    ([Phase(method='nbc', epochs=4)], 0.0, 2.0)
    """
    values = {name: value for name, value in config.settings.items() if name not in ("phases", "init")}
    phases = config.settings.get("phases")
    method = parse_phases(phases)[-1].method if phases else config.settings["method"]
    parts = objectives.parts_of(method, sources)
    values["methods"] = {name: part for name, part in config.settings.get("methods", {}).items() if name in parts}
    values |= {"hold": 0.0, "warmup": 0.0, "method": method, "epochs": epochs, **changes}
    return resolve(values if lr is None else {**values, "lr": lr}, sources)


def fine_tune(
    trained: TrainedNetwork,
    settings: TrainingSettings,
    run: RunDirectory,
    *,
    line_rate: float = LINE_RATE,
    observer: Observer | None = None,
) -> None:
    """Train a changed network on, in place, and write it as a new run.

    A checkpoint is written before the first epoch, so that ``resume`` never starts from new weights.

    Args:
        trained: The network, which may have been changed since it was loaded.
        settings: The settings. Their ``model`` must build the changed network.
        run: The run directory to write.
        line_rate: The learning rate of the lines of grafted ReLUs.
        observer: Who follows the training, such as a progress bar.

    Raises:
        UserError: The loss is not finite.
        InterruptedByUserError: The user pressed Ctrl-C. Everything is saved, and ``resume`` continues the training.
    """
    with join_process_group(settings.device) as group:
        torch.manual_seed(settings.seed)
        state = assemble(settings, run, trained.network, trained.data(), group, line_rate)
        group.on_rank_zero(lambda: run.path.mkdir(parents=True, exist_ok=True))
        save(state)
        group.on_rank_zero(lambda: copy_sources(trained, run))
        group.on_rank_zero(lambda: run.write_config(RunConfig(settings.as_config(), trained.config.input)))
        run_phases(state, observer or SilentObserver())
    trained.network.to("cpu").eval()
