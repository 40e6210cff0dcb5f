"""A run from its command line to its last commit, top to bottom. What it trains with is opened in `assembly.py`."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence

import torch

from isogclr.distributed import Messages, Ranks, end_group
from isogclr.errors import ConfigError, TrainingError
from training.assembly import Prepared, train
from training.commits import resume
from training.divergence import DIVERGED_EXIT_CODE
from training.epochs import Outcome
from training.folder import RunFolder, Start, configuration, copy_code, describe, open_folder, versions
from training.program import Context, Program
from training.ranks import rendezvous
from training.ranks.agreement import check_versions
from training.ranks.failures import FAILED_EXIT_CODE, FailureWatch, end_process
from training.ranks.node import find_node
from training.signals import STOPPED_EXIT_CODE, StopRequest
from training.steps.metric_log import MetricLog
from training.store.opening import check_not_in_use, live_file
from training.store.placement import choose_state_folder

USAGE_EXIT_CODE = 2


def run(kind: type[Program], argv: Sequence[str], stop: StopRequest) -> int:
    """Train or evaluate as the command line says; the exit code says how it ended."""
    try:
        program = kind.parse(argv)
    except ConfigError as error:
        return _refuse(kind.command, error)
    if torch.cuda.is_available():
        # As open_clip: the model's products may use TF32. The losses turn it off for their own.
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.benchmark = True
    try:
        if program.meets_by_environment:
            rendezvous.check_rendezvous()
    except TrainingError as error:
        return _refuse_rendezvous(kind.command, error)
    place = program.start_device()
    watch = FailureWatch(Ranks(), stop)
    try:
        ranks = Ranks()
        code = _run(Context(program, place, ranks, Messages.of(ranks), stop, watch.fail))
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


def _refuse(command: str, error: ConfigError) -> int:
    """Said once: by the first rank, if there are several."""
    rank = next((os.environ[name] for name in ("RANK", "SLURM_PROCID") if name in os.environ), "0")
    if rank == "0":
        problems = "".join(f"\n  {problem}" for problem in error.problems)
        sys.stderr.write(f"{command}: error:{problems}\n")
    return USAGE_EXIT_CODE


def _refuse_rendezvous(command: str, error: TrainingError) -> int:
    """Said once per node. Ranks of other nodes, who may find nothing wrong, are ended by their launcher."""
    if rendezvous.speaks():
        sys.stderr.write(f"{command}: error: {error}\n")
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
    finish_sync = None if folder.path is None else context.program.start_remote_sync(folder.path)
    if data is None:
        _evaluate_only(context, prepared)
        outcome = Outcome.FINISHED
    else:
        outcome = train(context, prepared, data, start)
        while outcome is Outcome.ROLLED_BACK:
            del prepared  # a second model beside it may not fit
            context.program.go_back()
            prepared = _prepare(context, folder)
            outcome = train(context, prepared, data, start)
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
    context.program.place_run(folder)
    _announce(context)
    check_versions(messages, versions())
    if settings.run.copy_codebase and place.is_first and folder.path is not None:
        copy_code(folder, is_resumed=settings.run.resume == "latest")
    node = find_node(messages)
    state_folder = choose_state_folder(settings.run.state_dir, folder.scratch, messages, node)
    if settings.data is not None and place.is_first:
        check_not_in_use(live_file(state_folder, node))
    resumed = resume.find(settings.run.resume, folder.checkpoints, messages)
    if resumed is not None:
        resume.check_program(resumed, context.program.kind, context.program.command)
    model = context.program.create_model(folder, place, messages)
    evaluation = context.program.open_evaluation(folder, place) if place.is_first else None
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
        resume.load_weights(resumed, prepared.model.stored)
    if prepared.evaluation is not None:
        epoch = 0 if resumed is None else int(resumed.checkpoint.get("epoch", 0))
        config = configuration(settings, folder, context.place.world_size)
        describe(folder, context.program.arguments(), config)
        metrics = MetricLog(folder.path, settings.run, True, folder.name, config)
        metrics.validation(0, epoch, prepared.evaluation.run(epoch, epoch, metrics))
        metrics.close()
    context.messages.barrier()
