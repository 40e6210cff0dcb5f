"""One process that is fed the batches of a run on many ranks, without DDP, loader processes or a file store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from isogclr.distributed import Ranks
from isogclr.shard_index import ShardIndex
from isogclr.state import MemoryStore, schema_for
from training import params
from training.data.epoch import TrainData
from training.data.image_text import PairInputs
from training.loss import create_loss
from training.model import Model, create_model
from training.open_clip_bridge import Place, autocast
from training.steps.optimization import Optimization
from training.steps.step import Stepper
from training.store.state_table import StateTable, new_state


def train_in_one_process(
    argv: Sequence[str], index: Path, ranks: int, recorded: Sequence[Sequence[Sequence[int]]]
) -> tuple[Model, MemoryStore]:
    """Train on the batches of all ranks, joined in their order. Their rows must be those that were recorded."""
    settings, _ = params.parse(argv)
    assert settings.data is not None
    place = Place(torch.device("cpu"), 0, 0, 1)
    model = create_model(settings.model, place, settings.run.seed)
    opened = ShardIndex.load(index)
    data = [
        TrainData.open(settings.data, opened, rank, ranks, PairInputs(model.transforms[0], model.tokenizer))
        for rank in range(ranks)
    ]
    steps = data[0].steps_per_epoch
    loss = create_loss(settings.loss, Ranks(), steps, settings.run.epochs)
    optimization = Optimization(model.wrapped, settings.optimizer, settings.model.precision, place.device)
    optimization.plan(steps, settings.run.epochs)
    store = MemoryStore.create(schema_for(loss.state_columns), data[0].rows, opened.fingerprint)
    table = StateTable(store, Ranks(), place.device)
    stepper = Stepper(model, loss, optimization, autocast(settings.model.precision, place.device))
    shared = loss.initial_shared()
    model.called.train()
    number = 0
    for epoch in range(settings.run.epochs):
        streams = [iter(one.epoch(epoch)) for one in data]
        for _ in range(steps):
            batches = [next(stream) for stream in streams for _ in range(settings.data.accumulation)]
            rows = torch.cat([batch.rows for batch in batches])
            assert rows.tolist() == [row for rank in recorded for row in rank[number]]
            inputs = [torch.cat(one) for one in zip(*(batch.inputs for batch in batches), strict=True)]
            optimization.begin(number)
            result = stepper.run([inputs], rows, lambda rows=rows: table.read(rows), shared, number)
            taken = optimization.step()
            model.after_step()
            shared = result.output.shared
            state = new_state(result.output, result.before)
            told = {"bad": torch.tensor(False), "loss": result.output.loss.detach()}
            table.send(rows, state, step=number, epoch=epoch, taken=taken, **told)
            table.settle()
            number += 1
    return model, store
