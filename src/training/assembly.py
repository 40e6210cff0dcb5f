"""What a run trains with: data, loss, optimizer, store, metrics and commits, opened in this order, put together."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from isogclr.losses import ContrastiveLoss
from isogclr.shard_index import ShardIndex
from isogclr.state import RowStore, schema_for
from training.commits import resume
from training.commits.commit import GENERATIONS, Commits, RunFacts
from training.commits.finiteness import Finiteness
from training.commits.resume import Resumed
from training.commits.rollback import Rollbacks
from training.data.epoch import TrainData
from training.divergence import Divergence
from training.epochs import Epochs, Outcome
from training.folder import RunFolder, Start, configuration, describe
from training.open_clip_bridge import Place, autocast
from training.program import Context, Evaluation, RunModel
from training.ranks.node import Node
from training.ranks.stopping import StepGate
from training.settings import DataSettings
from training.steps.health import Health
from training.steps.log_lines import StepReporter
from training.steps.loop import Loop, Parts
from training.steps.metric_log import MetricLog
from training.steps.optimization import Optimization
from training.steps.progress import Progress
from training.store.opening import live_file, open_store
from training.store.placement import StateFolder
from training.store.state_table import StateTable


@dataclass(frozen=True)
class Prepared:
    """A run before its training data is open."""

    folder: RunFolder
    node: Node
    state_folder: StateFolder
    resumed: Resumed | None
    model: RunModel
    evaluation: Evaluation | None  # on the first rank


def train(context: Context, prepared: Prepared, data_settings: DataSettings, start: Start) -> Outcome:
    """Open data, loss, optimizer and store, and train; says how it has ended."""
    program, settings, place, resumed = context.program, context.settings, context.place, prepared.resumed
    index_path = settings.run.index or prepared.folder.scratch / "index"
    index = program.open_index(index_path, context.messages, prepared.node)
    opened_data = program.open_data(index, prepared.folder, place)
    data = opened_data.data
    loss = program.create_loss(context.ranks, data.steps_per_epoch)
    optimization = Optimization(prepared.model.stored, settings.optimizer, settings.precision, place.device)
    rollbacks = Rollbacks.of(None if resumed is None else resumed.training, settings.optimizer.lr)
    optimization.plan(data.steps_per_epoch, settings.run.epochs, rollbacks.lr_factor)
    finiteness = Finiteness(prepared.model.stored)
    progress = _begin(resumed, prepared.model, loss, optimization, data.steps_per_epoch, place)
    health = Health(settings.divergence.max_bad_steps)

    def trained() -> dict[str, Any]:
        return {"state_dict": prepared.model.stored.state_dict(), **optimization.content()}

    if resumed is not None:
        resume.refuse_broken(resumed, finiteness.broken(trained()))
    first_step, had_stepped = progress.step, start.has_stepped()
    start.has_stepped = lambda: had_stepped or progress.step > first_step
    with ExitStack() as opened:
        store = _open_store(context, prepared, loss, data.rows, index)
        facts = {**program.facts(loss), **opened_data.facts}
        metrics = _open_metrics(
            context, prepared, progress, {"index": str(index_path), "directions": list(loss.directions), **facts}
        )
        _close_at_the_end(opened, context, prepared, data, store, metrics)
        table = StateTable(store, context.ranks.own_group(), place.device)
        reporter = _reporter(context, loss, optimization, table, metrics, data, data_settings, first_step)
        parts = Parts(
            model=prepared.model,
            loss=loss,
            optimization=optimization,
            table=table,
            reporter=reporter,
            autocast=autocast(settings.precision, place.device),
            device=place.device,
            accumulation=data_settings.accumulation,
            stop=context.stop,
            gate=StepGate(context.messages.ranks, context.stop),
            health=health,
        )
        return Epochs(
            settings=settings.run,
            place=place,
            messages=context.messages,
            loop=Loop(parts, progress),
            progress=progress,
            trained=trained,
            data=data,
            table=table,
            loss=loss,
            metrics=metrics,
            evaluates=program.evaluates,
            evaluates_first=program.evaluates_first,
            evaluation=prepared.evaluation,
            commits=_open_commits(context, prepared, facts, rollbacks),
            broken=lambda: finiteness.broken({**trained(), "shared": _columns(progress)}),
            divergence=_open_divergence(context, prepared, optimization, health, metrics, rollbacks),
        ).run(resumed)


def _begin(
    resumed: Resumed | None,
    model: RunModel,
    loss: ContrastiveLoss,
    optimization: Optimization,
    steps_per_epoch: int,
    place: Place,
) -> Progress:
    """Where training begins: at the start, or where a commit was made, with its weights and moments loaded."""
    fresh = Progress(steps_per_epoch=steps_per_epoch, shared=loss.initial_shared(device=place.device))
    if resumed is None:
        return fresh
    resume.check_loss(resumed, loss.name)
    if place.is_first:
        resume.warn_of_other_options(resumed, loss.name, loss.described_options())
    resume.load_weights(resumed, model.stored)
    if resumed.is_training:
        optimization.load(resumed.checkpoint)
    resumed.release()
    progress = resumed.progress(steps_per_epoch)
    progress.shared = fresh.shared if progress.shared is None else progress.shared.to(place.device)
    return progress


def _reporter(
    context: Context,
    loss: ContrastiveLoss,
    optimization: Optimization,
    table: StateTable,
    metrics: MetricLog,
    data: TrainData,
    settings: DataSettings,
    first_step: int,
) -> StepReporter:
    return StepReporter(
        loss=loss,
        optimization=optimization,
        table=table,
        metrics=metrics,
        ranks=context.ranks,
        samples_per_epoch=data.samples_per_epoch,
        samples_per_step=settings.batch_size * settings.accumulation,
        every_n_steps=context.settings.run.log_every_n_steps,
        first_step=first_step,
    )


def _open_store(
    context: Context, prepared: Prepared, loss: ContrastiveLoss, rows: int, index: ShardIndex | None
) -> RowStore:
    resumed = prepared.resumed
    snapshot = None if resumed is None else resumed.snapshot
    if resumed is not None and snapshot is None and loss.state_columns:
        logging.warning(f"{resumed.source} has no state of samples: all of them start as never visited")
    schema = schema_for(loss.state_columns)
    return open_store(prepared.state_folder, schema, rows, index, snapshot, context.messages, prepared.node)


def _open_metrics(context: Context, prepared: Prepared, progress: Progress, facts: dict[str, Any]) -> MetricLog:
    settings, folder, resumed = context.settings, prepared.folder, prepared.resumed
    config = configuration(settings, folder, context.place.world_size, **facts)
    if context.place.is_first:
        logging.info(f"Model:\n{prepared.model.bare}")
        describe(folder, context.program.arguments(), config)
    metrics = MetricLog(folder.path, settings.run, context.place.is_first, folder.name, config)
    metrics.start(progress.step, None if resumed is None else str(resumed.source))
    return metrics


def _close_at_the_end(
    opened: ExitStack, context: Context, prepared: Prepared, data: TrainData, store: RowStore, metrics: MetricLog
) -> None:
    """Whatever happens: the other ranks hear of an error first, then data, store and metrics are closed."""
    opened.callback(metrics.close)
    if prepared.state_folder.is_scratch and prepared.node.is_first_rank:
        live = live_file(prepared.state_folder, prepared.node)
        opened.callback(live.unlink, missing_ok=True)
    opened.callback(store.close)
    opened.callback(data.close)

    def tell(_kind: Any, error: BaseException | None, _trace: Any) -> None:
        if error is not None:
            context.failed(error)

    opened.push(tell)


def _columns(progress: Progress) -> Mapping[str, Tensor]:
    """State that all samples share, if the loss has some."""
    return {} if progress.shared is None else progress.shared.columns


def _open_divergence(
    context: Context,
    prepared: Prepared,
    optimization: Optimization,
    health: Health,
    metrics: MetricLog,
    rollbacks: Rollbacks,
) -> Divergence:
    checkpoints = prepared.folder.checkpoints
    return Divergence(
        settings=context.settings.divergence,
        health=health,
        metrics=metrics,
        messages=context.messages,
        generations=None if checkpoints is None else checkpoints / GENERATIONS,
        rollbacks=rollbacks,
        lr=lambda: optimization.lr,
    )


def _open_commits(
    context: Context, prepared: Prepared, facts: dict[str, Any], rollbacks: Rollbacks
) -> Commits | None:
    folder = prepared.folder
    if folder.checkpoints is None:
        return None
    run_facts = RunFacts(folder.name, facts)
    return Commits(
        folder.checkpoints,
        context.settings.run,
        context.messages,
        prepared.node,
        run_facts,
        context.place.device,
        rollbacks,
    )
