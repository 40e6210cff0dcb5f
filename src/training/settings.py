"""What a run is asked to do, as frozen values. `params` makes them from flags, which nobody else reads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isogclr.csv_table import CsvColumns, is_table
from isogclr.errors import ConfigError

if TYPE_CHECKING:
    from typing_extensions import Self  # typing has it from Python 3.11 on

WEBDATASET, CSV, SYNTHETIC, AUTO = "webdataset", "csv", "synthetic", "auto"
PICTURES = "pictures"  # of `training.unimodal`: shards, folders or CIFAR, told apart when they are opened


@dataclass(frozen=True)
class DataSettings:
    """The flags of open_clip that concern training data, under our names.

    Attributes:
        train_data: `--train-data`: shards (braces, `::` mixes) or a table; None for synthetic data. `--data` of
            `training.unimodal`.
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
    csv_separator: str = CsvColumns.separator
    csv_image_key: str = CsvColumns.image
    csv_caption_key: str = CsvColumns.caption
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
        if self.dataset_type != AUTO:
            return self.dataset_type
        name = self.train_data or ""
        if is_table(name):
            return CSV
        return WEBDATASET if name.rpartition(".")[2] == "tar" else AUTO

    @property
    def flag(self) -> str:
        """The flag that names the data."""
        return "--data" if self.kind == PICTURES else "--train-data"

    @property
    def csv_columns(self) -> CsvColumns:
        return CsvColumns(self.csv_separator, self.csv_image_key, self.csv_caption_key)

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
        if self.dataset_type not in (WEBDATASET, CSV, SYNTHETIC, PICTURES, AUTO):
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


@dataclass(frozen=True)
class ModelSettings:
    """Arguments of open_clip's model factory, and what is done to the model afterwards."""

    name: str
    pretrained: str
    precision: str
    text_model: Path | None = None
    factory_options: Mapping[str, Any] = field(default_factory=dict)
    lock_image: bool = False
    lock_image_unlocked_groups: int = 0
    lock_image_freeze_bn_stats: bool = False
    lock_text: bool = False
    lock_text_unlocked_layers: int = 0
    lock_text_freeze_layer_norm: bool = False
    grad_checkpointing: bool = False
    use_bn_sync: bool = False
    ddp_static_graph: bool = False
    torchcompile: bool = False
    use_bnb_linear: str | None = None


@dataclass(frozen=True)
class OptimizerSettings:
    """AdamW, LARS, SGD or a timm optimizer, its learning rate over the run, and the gradient's norm."""

    name: str
    lr: float | None
    beta1: float | None
    beta2: float | None
    eps: float | None
    weight_decay: float
    momentum: float | None
    scheduler: str
    warmup_steps: int
    skip_scheduler: bool
    epochs_cooldown: int | None
    cooldown_power: float
    cooldown_end: float
    grad_clip_norm: float | None
    warmup_epochs: float = 0.0  # beside the steps
    nesterov: bool = False


@dataclass(frozen=True)
class LossSettings:
    """Which loss, with the options that were given; the others have the defaults of its configuration.

    Args:
        options: fields of the loss's configuration, or arguments of open_clip's loss.
        gamma_decay_epochs: length of a cosine γ; None is half of the run.
        preset: name of the preset that the options contain; None for a loss that has none.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    gamma_decay_epochs: float | None = None
    preset: str | None = None


@dataclass(frozen=True)
class RunSettings:
    """The run itself: where it lives, how long it is, what it saves and says."""

    name: str | None
    logs: Path | None  # None: nothing is stored
    epochs: int
    seed: int
    resume: str | None
    save_frequency: int
    save_every_n_steps: int | None
    save_most_recent: bool
    delete_previous_checkpoint: bool
    log_every_n_steps: int
    log_local: bool
    debug: bool
    tensorboard: bool
    wandb: bool
    wandb_project: str
    wandb_notes: str
    copy_codebase: bool
    index: Path | None
    state_dir: Path | None


@dataclass(frozen=True)
class DivergenceSettings:
    """What is done about steps that are not finite.

    Attributes:
        max_bad_steps: in a row, before the run ends.
        rolls_back: go back to the last commit instead.
        lr_factor: of the learning rate, with every rollback.
        max_rollbacks: of one run.
    """

    max_bad_steps: int = 20
    rolls_back: bool = False
    lr_factor: float = 0.5
    max_rollbacks: int = 3


@dataclass(frozen=True)
class EvaluationSettings:
    """A suite of `isogclr eval` that is measured in training; None measures none."""

    suite: str | None
    datasets: tuple[str, ...]  # instead of the suite's own
    data_root: Path | None
    every_n_epochs: int
    batch_size: int
    workers: int


@dataclass(frozen=True)
class ProgramSettings(ABC):
    """What the command line of every program says.

    Args:
        data: None: evaluation only.
        notices: what the user should be told about flags that mean something else here; logged at the start.
    """

    run: RunSettings
    data: DataSettings | None
    optimizer: OptimizerSettings
    loss: LossSettings
    divergence: DivergenceSettings = field(default=DivergenceSettings(), kw_only=True)
    notices: tuple[str, ...] = field(default=(), kw_only=True)

    def resumed(self) -> Self:
        """The same run, which goes on from its newest commit."""
        return replace(self, run=replace(self.run, resume="latest"))

    @property
    @abstractmethod
    def model_name(self) -> str:
        """What is trained, in the name of a run that was given none."""

    @property
    @abstractmethod
    def precision(self) -> str:
        """Of the model, in open_clip's words."""


@dataclass(frozen=True)
class Settings(ProgramSettings):
    """Everything that the command line of `training.main` says."""

    model: ModelSettings
    evaluation: EvaluationSettings

    @property
    def model_name(self) -> str:
        return self.model.name

    @property
    def precision(self) -> str:
        return self.model.precision


@dataclass(frozen=True)
class ViewModelSettings:
    """A backbone, its projector, and the pictures that they see."""

    backbone: str
    stem: str
    projector: str
    image_size: int
    precision: str
    sync_bn: bool = False


@dataclass(frozen=True)
class PictureSettings:
    """Which pictures of the data are trained on, and where their labels are."""

    label: str  # of shards: `cls` files, or a field of the `json` files
    imbalance: float | None = None
    imbalance_seed: int = 0


@dataclass(frozen=True)
class NeighbourSettings:
    """kNN accuracy in training; without data there is none."""

    val_data: str | None
    every_n_epochs: int
    workers: int


@dataclass(frozen=True)
class UnimodalSettings(ProgramSettings):
    """Everything that the command line of `training.unimodal` says."""

    model: ViewModelSettings
    pictures: PictureSettings
    evaluation: NeighbourSettings
    device: str

    @property
    def model_name(self) -> str:
        return self.model.backbone

    @property
    def precision(self) -> str:
        return self.model.precision
