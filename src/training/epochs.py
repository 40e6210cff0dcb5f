"""The training of a run: data and store are opened, epochs trained, commits made."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch

from isogclr.config import ISogCLRConfig
from isogclr.distributed import Messages, Ranks
from isogclr.losses import ContrastiveLoss
from isogclr.shard_index import ShardIndex
from isogclr.state import RowStore, schema_for
from training import randomness
from training.commits.commit import Checkpoints, RunFacts
from training.commits.resume import Resumed, check_loss, load_weights
from training.data.epoch import EpochBatches, TrainData
from training.evaluation import Evaluation
from training.folder import RunFolder, configuration, describe, versions
from training.loss import create_loss
from training.model import Model
from training.open_clip_bridge import OpenClip, Place, autocast
from training.randomness import seed_everything
from training.ranks.node import Node
from training.settings import Settings
from training.signals import StopRequest
from training.steps.loop import Loop, Parts, Progress
from training.steps.metric_log import MetricLog
from training.steps.optimization import Optimization
from training.steps.step import Stepper
from training.store.all_rows import seen_in_epoch, temperature_histograms
from training.store.opening import live_file, open_index, open_store
from training.store.placement import StateFolder
from training.store.table import StateTable


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


def train(
    context: Context,
    model: Model,
    evaluation: Evaluation | None,
    folder: RunFolder,
    resumed: Resumed | None,
    node: Node,
    state_folder: StateFolder,
) -> bool:
    """Train to the end, or until somebody asks to stop; says which."""
    settings, place = context.settings, context.place
    assert settings.data is not None
    index_path = settings.run.index or folder.scratch / "index"
    index = open_index(settings.data, index_path, context.messages, node)
    data = _open_data(context, model, index)
    loss = create_loss(settings.loss, context.ranks, data.steps_per_epoch, settings.run.epochs)
    optimization = Optimization(model.wrapped, settings.optimizer, settings.model.precision, place.device)
    optimization.plan(data.steps_per_epoch, settings.run.epochs)
    progress = Progress(steps_per_epoch=data.steps_per_epoch, shared=loss.initial_shared(device=place.device))
    if resumed is not None:
        check_loss(resumed, loss.name)
        load_weights(resumed, model.wrapped, optimization)
        resumed.release()
        progress = _resumed_progress(resumed, progress, place.device)
    store = _open_store(context, state_folder, loss, data, index, resumed, node)
    facts = _facts(settings, model, loss)
    config = configuration(settings, folder, place.world_size, index=str(index_path), **facts)
    if place.is_first:
        logging.info(f"Model:\n{model.bare}")
        describe(folder, context.open_clip.arguments(), config)
    metrics = MetricLog(folder.path, settings.run, place.is_first, folder.name, config)
    metrics.start(progress.step, None if resumed is None else str(resumed.source))
    parts = Parts(
        model=model,
        loss=loss,
        optimization=optimization,
        stepper=Stepper(model, loss, optimization, autocast(settings.model.precision, place.device)),
        table=StateTable(store, context.ranks.own_group(), place.device),
        data=data,
        metrics=metrics,
        ranks=context.ranks,
        device=place.device,
        precision=settings.model.precision,
        accumulation=settings.data.accumulation,
        stop=context.stop,
    )
    checkpoints = _checkpoints(context, folder, node, facts)
    try:
        return Training(context, parts, progress, checkpoints, evaluation).run(resumed)
    except BaseException as error:
        context.failed(error)
        raise
    finally:
        data.close()
        store.close()
        if state_folder.is_scratch and node.is_first_rank:
            live_file(state_folder, node).unlink(missing_ok=True)
        metrics.close()


class Training:
    """Epoch after epoch.

    Args:
        context: of the run.
        parts: of the loop.
        progress: where to begin.
        checkpoints: None if nothing is stored.
        evaluation: on rank 0.
    """

    def __init__(
        self,
        context: Context,
        parts: Parts,
        progress: Progress,
        checkpoints: Checkpoints | None,
        evaluation: Evaluation | None,
    ) -> None:
        self._context = context
        self._parts = parts
        self._progress = progress
        self._checkpoints = checkpoints
        self._evaluation = evaluation
        self._loop = Loop(parts, progress, context.settings.run.log_every_n_steps, self._after_step)

    def run(self, resumed: Resumed | None) -> bool:
        """False if somebody asked to stop."""
        progress, data = self._progress, self._parts.data
        batches = None if resumed is None else self._rest_of_epoch(resumed)
        for epoch in range(progress.epoch, self._context.settings.run.epochs):
            if self._context.place.is_first:
                logging.info(f"Start epoch {epoch}")
            progress.epoch = epoch
            if not self._loop.train_epoch(batches or data.epoch(epoch)):
                return False
            batches = None
            self._end_epoch(epoch + 1)
        return True

    def _rest_of_epoch(self, resumed: Resumed) -> EpochBatches | None:
        """What is left of the epoch that a commit was made in, by the two rules of `docs/data_flow.md`."""
        progress, data, rank = self._progress, self._parts.data, self._context.place.rank
        logging.info(
            f"=> resuming checkpoint '{resumed.source}' (epoch {progress.epoch}, step {progress.step}, "
            f"{100 * progress.done / progress.steps_per_epoch:.1f}% of the epoch done)"
        )
        if progress.epoch >= self._context.settings.run.epochs:
            return None
        generators = resumed.generators(rank)
        if generators is not None:
            randomness.restore(generators, self._parts.device)
        else:
            seed_everything(self._context.settings.run.seed + progress.step, rank)
        position = resumed.position(rank)
        if position is None:
            return data.resume_at(data.start_of(progress.epoch))
        if data.same_set_up(position):
            return data.resume_at(position)
        changes = "; ".join(position.set_up.differences(data.set_up)) or "it had changed before"
        logging.info(f"The set-up has changed ({changes}): going on with the samples that this epoch has not seen")
        return data.resume_unseen(progress.epoch, seen_in_epoch(self._parts.table.store, progress.epoch))

    def _after_step(self, is_stopping: bool) -> None:
        if self._checkpoints is None or not (is_stopping or self._checkpoints.is_due(self._progress.step)):
            return
        self._loop.settle()
        self._checkpoints.commit(
            self._progress, self._parts.model, self._parts.optimization, self._parts.table.store
        )

    def _end_epoch(self, completed: int) -> None:
        """Evaluate, then commit. What was trained is committed before: a crash in here repeats only this."""
        progress, parts = self._progress, self._parts
        if self._context.open_clip.evaluates or self._context.settings.evaluation.suite is not None:
            self._after_step(is_stopping=True)
        if self._evaluation is not None:
            epochs = self._context.settings.run.epochs
            found = self._evaluation.run(parts.model, completed, epochs, parts.metrics)
            parts.metrics.validation(progress.step, completed, found)
            for record in _histograms(parts.loss, parts.table.store):
                parts.metrics.distribution(progress.step, completed, record)
        self._context.messages.barrier()
        progress.done, progress.position = 0.0, None
        if self._checkpoints is not None:
            self._checkpoints.commit(
                progress, parts.model, parts.optimization, parts.table.store, completed_epoch=completed
            )


def _open_data(context: Context, model: Model, index: ShardIndex | None) -> TrainData:
    place = context.place
    assert context.settings.data is not None
    return TrainData.open(
        context.settings.data,
        index,
        place.rank,
        place.world_size,
        model.transforms[0],
        model.tokenizer,
        pin_memory=place.device.type == "cuda",
    )


def _checkpoints(context: Context, folder: RunFolder, node: Node, facts: dict[str, Any]) -> Checkpoints | None:
    if folder.checkpoints is None:
        return None
    run_facts = RunFacts(folder.name, facts)
    return Checkpoints(
        folder.checkpoints, context.settings.run, context.messages, node, run_facts, context.place.device
    )


def _resumed_progress(resumed: Resumed, fresh: Progress, device: torch.device) -> Progress:
    progress = resumed.progress(fresh.steps_per_epoch)
    progress.shared = fresh.shared if progress.shared is None else progress.shared.to(device)
    return progress


def _open_store(
    context: Context,
    folder: StateFolder,
    loss: ContrastiveLoss,
    data: TrainData,
    index: ShardIndex | None,
    resumed: Resumed | None,
    node: Node,
) -> RowStore:
    snapshot = None if resumed is None else resumed.snapshot
    if resumed is not None and snapshot is None and loss.state_columns:
        logging.warning(f"{resumed.source} has no state of samples: all of them start as never visited")
    return open_store(folder, schema_for(loss.state_columns), data.rows, index, snapshot, context.messages, node)


def _facts(settings: Settings, model: Model, loss: ContrastiveLoss) -> dict[str, Any]:
    """What a checkpoint says about itself: plain values, so that it loads without running code."""
    options = settings.model.factory_options
    has_text_weights = "hf_model_name" in model.config.get("text_cfg", {}) and bool(options.get("pretrained_text"))
    config = getattr(loss, "config", None)
    return {
        "loss": loss.name,
        "loss_config": dict(settings.loss.options) if config is None else asdict(config),
        "model": settings.model.name,
        "model_config": dict(model.config),
        "preprocess_cfg": model.preprocess_config,
        "pretrained": bool(settings.model.pretrained) or bool(options.get("pretrained_image")) or has_text_weights,
        "seed": settings.run.seed,
        "versions": versions(),
    }


def _histograms(loss: ContrastiveLoss, store: RowStore) -> list[dict[str, Any]]:
    config = getattr(loss, "config", None)
    if not isinstance(config, ISogCLRConfig):
        return []
    return temperature_histograms(store, config.temperature_min, config.temperature_max)
