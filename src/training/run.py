"""A run from its command line to its last commit, top to bottom."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from isogclr.distributed import Messages, Ranks, end_group
from isogclr.errors import ConfigError, TrainingError
from training import params
from training.commits import resume
from training.commits.resume import Resumed
from training.epochs import Context, train
from training.evaluation import Evaluation
from training.folder import RunFolder, configuration, copy_code, describe, open_folder, versions
from training.model import Model, create_model, prepare_text_tower
from training.open_clip_bridge import OpenClip
from training.ranks import rendezvous
from training.ranks.agreement import check_versions
from training.ranks.failures import FAILED_EXIT_CODE, FailureWatch, end_process
from training.ranks.node import find_node
from training.signals import STOPPED_EXIT_CODE, StopRequest
from training.steps.metric_log import MetricLog
from training.store.opening import check_not_in_use, live_file
from training.store.placement import choose_state_folder

USAGE_EXIT_CODE = 2


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
    watch = FailureWatch(Ranks())
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
    """Said once a node. Ranks of other nodes, who may find nothing wrong, are ended by their launcher."""
    if rendezvous.speaks():
        sys.stderr.write(f"python -m training.main: error: {error}\n")
    return FAILED_EXIT_CODE


def _run(context: Context) -> int:
    """The story of a run."""
    settings, place, open_clip = context.settings, context.place, context.open_clip
    folder = open_folder(settings, place, context.messages)
    open_clip.place_run(folder.name, folder.checkpoints)
    _announce(context)
    check_versions(context.messages, versions())
    if settings.run.copy_codebase and place.is_first and folder.path is not None:
        copy_code(folder, is_resumed=settings.run.resume == "latest")
    node = find_node(context.messages)
    state_folder = choose_state_folder(settings.run.state_dir, folder.scratch, context.messages, node)
    if settings.data is not None and place.is_first:
        check_not_in_use(live_file(state_folder, node))
    resumed = resume.find(settings.run.resume, folder.checkpoints, context.messages)
    tower = prepare_text_tower(settings.model, folder.scratch / "text_model") if place.is_first else None
    tower = context.messages.from_first(None if tower is None else str(tower))
    model = create_model(settings.model, place, settings.run.seed, None if tower is None else Path(tower))
    evaluation = _evaluation(context, model)
    finish_sync = None if folder.path is None else open_clip.start_remote_sync(folder.path)
    if settings.data is None:
        _evaluate_only(context, model, evaluation, folder, resumed)
        finished = True
    else:
        finished = train(context, model, evaluation, folder, resumed, node, state_folder)
    if finish_sync is not None:
        finish_sync()
    context.messages.barrier()  # launchers end what is left some time after the first rank has ended
    if not finished and folder.checkpoints is None:
        logging.error("Stopped on request; nothing was committed, because of --logs none")
        return FAILED_EXIT_CODE
    return 0 if finished else STOPPED_EXIT_CODE


def _evaluation(context: Context, model: Model) -> Evaluation | None:
    if not context.place.is_first:
        return None
    settings = context.settings
    return Evaluation(context.open_clip, settings.evaluation, model, context.place, settings.model.precision)


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


def _evaluate_only(
    context: Context, model: Model, evaluation: Evaluation | None, folder: RunFolder, resumed: Resumed | None
) -> None:
    """No training data: say how good the model is."""
    settings = context.settings
    if resumed is not None:
        resume.load_weights(resumed, model.wrapped, None)
    if evaluation is not None:
        epoch = 0 if resumed is None else int(resumed.checkpoint.get("epoch", 0))
        config = configuration(settings, folder, context.place.world_size)
        describe(folder, context.open_clip.arguments(), config)
        metrics = MetricLog(folder.path, settings.run, True, folder.name, config)
        metrics.validation(0, epoch, evaluation.run(model, epoch, epoch, metrics))
        metrics.close()
    context.messages.barrier()
