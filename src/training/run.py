"""A run from its command line to its last commit, top to bottom."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from isogclr.distributed import Messages, Ranks, end_group
from isogclr.errors import ConfigError, TrainingError
from isogclr.losses import ContrastiveLoss
from isogclr.shard_index import ShardIndex
from isogclr.state import RowStore, schema_for
from training import params
from training.commits import resume
from training.commits.commit import GENERATIONS, Commits, RunFacts
from training.commits.finiteness import Finiteness
from training.commits.resume import Resumed
from training.commits.rollback import Rollbacks
from training.data.epoch import TrainData
from training.data.image_text import PairInputs
from training.divergence import DIVERGED_EXIT_CODE, Divergence
from training.epochs import Epochs, Outcome
from training.evaluation import Evaluation
from training.folder import RunFolder, Start, configuration, copy_code, describe, open_folder, versions
from training.loss import create_loss
from training.model import Model, create_model, prepare_text_tower
from training.open_clip_bridge import OpenClip, Place, autocast
from training.ranks import rendezvous
from training.ranks.agreement import check_versions
from training.ranks.failures import FAILED_EXIT_CODE, FailureWatch, end_process
from training.ranks.node import Node, find_node
from training.ranks.stopping import StepGate
from training.settings import DataSettings, Settings
from training.signals import STOPPED_EXIT_CODE, StopRequest
from training.steps.health import Health
from training.steps.log_lines import StepReporter
from training.steps.loop import Loop, Parts
from training.steps.metric_log import MetricLog
from training.steps.optimization import Optimization
from training.steps.progress import Progress
from training.store.opening import check_not_in_use, live_file, open_index, open_store
from training.store.placement import StateFolder, choose_state_folder
from training.store.state_table import StateTable

USAGE_EXIT_CODE = 2


@dataclass(frozen=True)
class Context:
    """What every part of a run needs to know about it.

    `failed` tells the other ranks of an error before this one cleans up: closing a store or a logger may take long.
    """

    settings: Settings
    open_clip: OpenClip
    place: Place
    ranks: Ranks
    messages: Messages
    stop: StopRequest
    failed: Callable[[BaseException], None]


@dataclass(frozen=True)
class Prepared:
    """A run before its training data is open."""

    folder: RunFolder
    node: Node
    state_folder: StateFolder
    resumed: Resumed | None
    model: Model
    evaluation: Evaluation | None  # on the first rank


def run(argv: Sequence[str], stop: StopRequest) -> int:
    """Train or evaluate as the command line says; the exit code says how it ended."""
    try:
        settings, arguments = params.parse(argv)
    except ConfigError as error:
        return _refuse(error)
    if torch.cuda.is_available():
        # As open_clip: the model's products may use TF32. The losses turn it off for their own.
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.benchmark = True
    open_clip = OpenClip(arguments)
    try:
        if open_clip.meets_by_environment:
            rendezvous.check_rendezvous()
    except TrainingError as error:
        return _refuse_rendezvous(error)
    place = open_clip.start_device()
    watch = FailureWatch(Ranks(), stop)
    try:
        ranks = Ranks()
        code = _run(Context(settings, open_clip, place, ranks, Messages.of(ranks), stop, watch.fail))
        is_closed = watch.close()
        end_group()
    except BaseException as error:
        watch.fail(error)
        if isinstance(error, KeyboardInterrupt):
            watch.close()
            raise
        if place.world_size > 1:
            end_process(FAILED_EXIT_CODE)
        return FAILED_EXIT_CODE
    if not is_closed:
        end_process(code)
    return code


def _refuse(error: ConfigError) -> int:
    """Said once: by the first rank, if there are several."""
    rank = next((os.environ[name] for name in ("RANK", "SLURM_PROCID") if name in os.environ), "0")
    if rank == "0":
        problems = "".join(f"\n  {problem}" for problem in error.problems)
        sys.stderr.write(f"python -m training.main: error:{problems}\n")
    return USAGE_EXIT_CODE


def _refuse_rendezvous(error: TrainingError) -> int:
    """Said once per node. Ranks of other nodes, who may find nothing wrong, are ended by their launcher."""
    if rendezvous.speaks():
        sys.stderr.write(f"python -m training.main: error: {error}\n")
    return FAILED_EXIT_CODE


def _run(context: Context) -> int:
    """The story of a run: prepare, train (or only evaluate), say how it ended."""
    folder, start = open_folder(context.settings, context.place, context.messages)
    try:
        return _run_in(context, folder, start)
    except BaseException as error:
        context.failed(error)  # the other ranks hear of it before files move
        start.fail()
        raise


def _run_in(context: Context, folder: RunFolder, start: Start) -> int:
    prepared, data = _prepare(context, folder), context.settings.data
    finish_sync = None if folder.path is None else context.open_clip.start_remote_sync(folder.path)
    if data is None:
        _evaluate_only(context, prepared)
        outcome = Outcome.FINISHED
    else:
        outcome = _train(context, prepared, data, start)
        while outcome is Outcome.ROLLED_BACK:
            context = replace(context, settings=context.settings.resumed())
            del prepared  # a second model beside it may not fit
            prepared = _prepare(context, folder)
            outcome = _train(context, prepared, data, start)
    if finish_sync is not None:
        finish_sync()
    context.messages.barrier()  # launchers end what is left some time after the first rank has ended
    if outcome is Outcome.STOPPED and folder.checkpoints is None:
        logging.error("Stopped on request; nothing was committed, because of --logs none")
        return FAILED_EXIT_CODE
    return {Outcome.STOPPED: STOPPED_EXIT_CODE, Outcome.DIVERGED: DIVERGED_EXIT_CODE}.get(outcome, 0)


def _prepare(context: Context, folder: RunFolder) -> Prepared:
    """Everything that can be checked and made before the training data is looked at."""
    settings, place, messages = context.settings, context.place, context.messages
    context.open_clip.place_run(folder.name, folder.checkpoints)
    _announce(context)
    check_versions(messages, versions())
    if settings.run.copy_codebase and place.is_first and folder.path is not None:
        copy_code(folder, is_resumed=settings.run.resume == "latest")
    node = find_node(messages)
    state_folder = choose_state_folder(settings.run.state_dir, folder.scratch, messages, node)
    if settings.data is not None and place.is_first:
        check_not_in_use(live_file(state_folder, node))
    resumed = resume.find(settings.run.resume, folder.checkpoints, messages)
    tower = prepare_text_tower(settings.model, folder.scratch / "text_model") if place.is_first else None
    tower = messages.from_first(None if tower is None else str(tower))
    model = create_model(settings.model, place, settings.run.seed, None if tower is None else Path(tower))
    evaluation = None
    if place.is_first:
        evaluation = Evaluation(context.open_clip, settings.evaluation, model, place, settings.model.precision)
    return Prepared(folder, node, state_folder, resumed, model, evaluation)


def _announce(context: Context) -> None:
    place = context.place
    if place.world_size > 1:
        logging.info(
            f"Running in distributed mode with multiple processes. Device: {place.device}."
            f"Process (global: {place.rank}, local {place.local_rank}), total {place.world_size}."
        )
    else:
        logging.info(f"Running with a single process. Device {place.device}.")
    if place.is_first:
        for notice in context.settings.notices:
            logging.warning(notice)


def _evaluate_only(context: Context, prepared: Prepared) -> None:
    """No training data: say how good the model is."""
    settings, folder, resumed = context.settings, prepared.folder, prepared.resumed
    if resumed is not None:
        resume.load_weights(resumed, prepared.model.wrapped)
    if prepared.evaluation is not None:
        epoch = 0 if resumed is None else int(resumed.checkpoint.get("epoch", 0))
        config = configuration(settings, folder, context.place.world_size)
        describe(folder, context.open_clip.arguments(), config)
        metrics = MetricLog(folder.path, settings.run, True, folder.name, config)
        metrics.validation(0, epoch, prepared.evaluation.run(epoch, epoch, metrics))
        metrics.close()
    context.messages.barrier()


def _train(context: Context, prepared: Prepared, data_settings: DataSettings, start: Start) -> Outcome:
    """Open data, loss, optimizer and store, and train; says how it has ended."""
    settings, place, resumed = context.settings, context.place, prepared.resumed
    index_path = settings.run.index or prepared.folder.scratch / "index"
    index = open_index(data_settings, index_path, context.messages, prepared.node)
    data = _open_data(data_settings, index, prepared.model, place)
    loss = create_loss(settings.loss, context.ranks, data.steps_per_epoch, settings.run.epochs)
    optimization = Optimization(prepared.model.wrapped, settings.optimizer, settings.model.precision, place.device)
    rollbacks = Rollbacks.of(None if resumed is None else resumed.training, settings.optimizer.lr)
    optimization.plan(data.steps_per_epoch, settings.run.epochs, rollbacks.lr_factor)
    finiteness = Finiteness(prepared.model.wrapped)
    progress = _begin(resumed, prepared.model, loss, optimization, data.steps_per_epoch, place)
    health = Health(settings.divergence.max_bad_steps)

    def trained() -> dict[str, Any]:
        return {"state_dict": prepared.model.wrapped.state_dict(), **optimization.content()}

    if resumed is not None:
        resume.refuse_broken(resumed, finiteness.broken(trained()))
    first_step, had_stepped = progress.step, start.has_stepped()
    start.has_stepped = lambda: had_stepped or progress.step > first_step
    with ExitStack() as opened:
        store = _open_store(context, prepared, loss, data.rows, index)
        facts = _facts(settings, prepared.model, loss)
        metrics = _open_metrics(
            context, prepared, progress, {"index": str(index_path), "directions": list(loss.directions), **facts}
        )
        _close_at_the_end(opened, context, prepared, data, store, metrics)
        table = StateTable(store, context.ranks.own_group(), place.device)
        reporter = StepReporter(
            loss=loss,
            optimization=optimization,
            table=table,
            metrics=metrics,
            ranks=context.ranks,
            samples_per_epoch=data.samples_per_epoch,
            samples_per_step=data_settings.batch_size * data_settings.accumulation,
            every_n_steps=settings.run.log_every_n_steps,
            first_step=first_step,
        )
        parts = Parts(
            model=prepared.model,
            loss=loss,
            optimization=optimization,
            table=table,
            reporter=reporter,
            autocast=autocast(settings.model.precision, place.device),
            device=place.device,
            accumulation=data_settings.accumulation,
            stop=context.stop,
            health=health,
            gate=StepGate(context.messages.ranks, context.stop),
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
            evaluates=context.open_clip.evaluates or settings.evaluation.suite is not None,
            evaluation=prepared.evaluation,
            commits=_open_commits(context, prepared, facts, rollbacks),
            broken=lambda: finiteness.broken({**trained(), "shared": _columns(progress)}),
            divergence=Divergence(
                settings=settings.divergence,
                health=health,
                metrics=metrics,
                messages=context.messages,
                generations=None
                if prepared.folder.checkpoints is None
                else prepared.folder.checkpoints / GENERATIONS,
                rollbacks=rollbacks,
                lr=lambda: optimization.lr,
            ),
        ).run(resumed)


def _open_data(settings: DataSettings, index: ShardIndex | None, model: Model, place: Place) -> TrainData:
    return TrainData.open(
        settings,
        index,
        place.rank,
        place.world_size,
        PairInputs(model.transforms[0], model.tokenizer),
        pin_memory=place.device.type == "cuda",
    )


def _begin(
    resumed: Resumed | None,
    model: Model,
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
    resume.load_weights(resumed, model.wrapped)
    if resumed.is_training:
        optimization.load(resumed.checkpoint)
    resumed.release()
    progress = resumed.progress(steps_per_epoch)
    progress.shared = fresh.shared if progress.shared is None else progress.shared.to(place.device)
    return progress


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
        describe(folder, context.open_clip.arguments(), config)
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


def _columns(progress: Progress) -> Mapping[str, torch.Tensor]:
    """State that all samples share, if the loss has some."""
    return {} if progress.shared is None else progress.shared.columns


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


def _facts(settings: Settings, model: Model, loss: ContrastiveLoss) -> dict[str, Any]:
    """What a checkpoint says about itself: plain values, so that it loads without running code."""
    options = settings.model.factory_options
    has_text_weights = "hf_model_name" in model.config.get("text_cfg", {}) and bool(options.get("pretrained_text"))
    return {
        "loss": loss.name,
        "loss_config": loss.described_options(),
        "model": settings.model.name,
        "model_config": dict(model.config),
        "preprocess_cfg": model.preprocess_config,
        "pretrained": bool(settings.model.pretrained) or bool(options.get("pretrained_image")) or has_text_weights,
        "seed": settings.run.seed,
        "versions": versions(),
    }
