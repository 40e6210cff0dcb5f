"""What the training data is and how it is to be read."""

from __future__ import annotations

from dataclasses import dataclass

from isogclr.errors import ConfigError

WEBDATASET, CSV, SYNTHETIC, AUTO = "webdataset", "csv", "synthetic", "auto"
_BY_ENDING = {"csv": CSV, "tsv": CSV, "tar": WEBDATASET}


@dataclass(frozen=True)
class DataConfig:
    """The flags of open_clip that concern training data, under our names.

    Attributes:
        train_data: `--train-data`: shards (braces, `::` mixes) or a table; None for synthetic data.
        dataset_type: `--dataset-type`: webdataset, csv, synthetic or auto (by the ending of the name).
        resampled: `--dataset-resampled`: draw shards with replacement.
        upsampling_factors: `--train-data-upsampling-factors`: one weight for each part of a `::` mix.
        num_samples: `--train-num-samples`: samples of an epoch; None takes all there are.
        csv_separator, csv_image_key, csv_caption_key: how a table is read.
        batch_size: pairs of one micro-batch on one rank.
        accumulation: micro-batches of one step.
        workers: data worker processes of one rank; 0 reads in the training process.
        seed: of every shuffle and of augmentation.
    """

    train_data: str | None
    dataset_type: str = AUTO
    resampled: bool = False
    upsampling_factors: str | None = None
    num_samples: int | None = None
    csv_separator: str = "\t"
    csv_image_key: str = "filepath"
    csv_caption_key: str = "title"
    batch_size: int = 64
    accumulation: int = 1
    workers: int = 4
    seed: int = 0

    def __post_init__(self) -> None:
        problems = [*self._number_problems(), *self._source_problems(), *self._mix_problems()]
        if problems:
            raise ConfigError(problems)

    @property
    def kind(self) -> str:
        """webdataset, csv or synthetic, once the configuration is valid."""
        return _BY_ENDING.get(self._ending(), AUTO) if self.dataset_type == AUTO else self.dataset_type

    def _ending(self) -> str:
        return (self.train_data or "").rpartition(".")[2]

    def _number_problems(self) -> list[str]:
        found = [
            f"{name} is {value}, expected {least} or more"
            for name, value, least in (
                ("batch_size", self.batch_size, 1),
                ("accumulation", self.accumulation, 1),
                ("workers", self.workers, 0),
                ("num_samples", self.num_samples, 1),
            )
            if value is not None and value < least
        ]
        if self.num_samples is None and self.dataset_type == SYNTHETIC:
            found.append("synthetic data has no size of its own: say it with --train-num-samples")
        return found

    def _source_problems(self) -> list[str]:
        if self.dataset_type not in (WEBDATASET, CSV, SYNTHETIC, AUTO):
            return [f"dataset_type is {self.dataset_type!r}, expected webdataset, csv, synthetic or auto"]
        if self.dataset_type != SYNTHETIC and not self.train_data:
            return ["there is no training data: name shards or a table with --train-data"]
        if self.kind == AUTO:
            return [
                f"--train-data {self.train_data} ends neither in .tar nor in .csv or .tsv: "
                "say what it is with --dataset-type"
            ]
        return []

    def _mix_problems(self) -> list[str]:
        found = []
        if self.resampled and self.kind in (CSV, SYNTHETIC):
            found.append(f"--dataset-resampled draws shards, and {self.kind} data has none: leave it out")
        if self.upsampling_factors is None:
            return found
        if not self.resampled:
            found.append("--train-data-upsampling-factors needs --dataset-resampled")
        factors = self.upsampling_factors.split("::")
        parts = len((self.train_data or "").split("::"))
        if len(factors) != parts:
            found.append(f"{len(factors)} upsampling factors for {parts} parts of --train-data: give one for each")
        try:
            weights = [float(factor) for factor in factors]
        except ValueError:
            return [*found, f"upsampling factors {self.upsampling_factors!r} are not numbers, as in 2::1"]
        if not all(0 <= weight < float("inf") for weight in weights) or not any(weights):
            found.append(f"upsampling factors {self.upsampling_factors!r}: expected none negative and one above 0")
        return found
