"""The command line of `training.unimodal`: defaults, presets, flags that win, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from isogclr import demo_data
from isogclr.errors import ConfigError
from isogclr.losses import VIEW_LOSSES
from training.params.unimodal_flags import create_unimodal_parser
from training.params.unimodal_line import parse_unimodal
from training.params.unimodal_presets import DEFAULTS, UNIMODAL_RUN_PRESETS
from training.settings import UnimodalSettings


@pytest.fixture(autouse=True)
def _data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pictures").mkdir()
    monkeypatch.delenv("WORLD_SIZE", raising=False)


def settings(*argv: str, data: str = "pictures") -> UnimodalSettings:
    return parse_unimodal(["--data", data, "--device", "cpu", *argv])[0]


def problems(*argv: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_unimodal(list(argv))
    return list(caught.value.problems)


class TestPresets:
    """Section 4.2 of the paper; ρ and SimCLR's τ from the tables of its appendix."""

    @pytest.mark.parametrize(
        ("preset", "model", "lr", "batch", "epochs", "imbalance", "rho"),
        [
            ("cifar10", "resnet18 cifar 32", 0.8, 128, 400, None, 0.2),
            ("cifar100", "resnet18 cifar 32", 0.8, 128, 400, None, 0.4),
            ("cifar10-lt", "resnet18 cifar 32", 0.8, 128, 400, 100, 0.4),
            ("cifar100-lt", "resnet18 cifar 32", 0.8, 128, 400, 100, 0.4),
            ("imagenet100", "resnet50 imagenet 224", 1.2, 256, 200, None, 0.2),
            ("inaturalist", "resnet50 imagenet 224", 1.2, 256, 200, None, 0.3),
        ],
    )
    def test_the_papers_settings(
        self, preset: str, model: str, lr: float, batch: int, epochs: int, imbalance: float | None, rho: float
    ) -> None:
        found = settings("--preset", preset)
        assert found.data is not None
        assert f"{found.model.backbone} {found.model.stem} {found.model.image_size}" == model
        assert found.model.projector == "8192-8192-8192"
        assert (found.optimizer.name, found.optimizer.momentum, found.optimizer.weight_decay) == ("lars", 0.9, 1e-4)
        assert (found.optimizer.lr, found.data.batch_size, found.run.epochs) == (lr, batch, epochs)
        assert (found.optimizer.scheduler, found.optimizer.warmup_epochs) == ("cosine", 10)
        assert found.pictures.imbalance == imbalance
        options = found.loss.options
        assert (found.loss.name, options["rho"]) == ("isogclr", rho)
        assert (options["temperature_init"], options["temperature_min"]) == (0.7, 0.05)

    @pytest.mark.parametrize(("preset", "temperature"), [("cifar10", 0.5), ("cifar100", 0.3), ("imagenet100", 0.3)])
    def test_the_best_temperature_of_simclr(self, preset: str, temperature: float) -> None:
        assert settings("--preset", preset, "--loss", "simclr").loss.options["temperature"] == temperature

    def test_any_flag_that_is_given_wins(self) -> None:
        found = settings("--preset", "cifar10-lt", "--lr", "0.3", "--imbalance", "10", "--isogclr-rho", "0.7")
        assert (found.optimizer.lr, found.pictures.imbalance, found.loss.options["rho"]) == (0.3, 10, 0.7)
        assert found.loss.options["temperature_init"] == 0.7

    def test_a_flag_wins_though_it_has_the_value_of_the_default(self) -> None:
        assert settings("--preset", "imagenet100", "--lr", "0.8").optimizer.lr == 0.8

    def test_without_one_they_are_those_of_cifar_and_the_authors_recipe(self) -> None:
        found = settings()
        assert (found.model.backbone, found.optimizer.lr, found.run.epochs) == ("resnet18", 0.8, 400)
        assert (found.loss.options["temperature_init"], found.loss.options["momentum_weight"]) == (0.1, 0.5)

    def test_the_demo_needs_no_flag(self) -> None:
        found = parse_unimodal(["--preset", "demo", "--device", "cpu"])[0]
        assert found.data is not None
        assert found.data.train_data == demo_data.TRAIN_DATA
        assert (found.evaluation.val_data, found.pictures.label) == (demo_data.TEST_DATA, "group")

    def test_presets_know_the_flags(self) -> None:
        for preset in UNIMODAL_RUN_PRESETS.values():
            assert preset.flags.keys() <= DEFAULTS.keys()


class TestFlags:
    def test_every_flag_has_a_default_and_says_it(self) -> None:
        actions = [one for one in create_unimodal_parser()._actions if one.dest not in ("help", "preset")]
        own = [one for one in actions if not any(one.dest.startswith(f"{_word(loss)}_") for loss in VIEW_LOSSES)]
        assert {one.dest for one in own} | {"isogclr_state_dir"} == DEFAULTS.keys()
        silent = [one.dest for one in actions if "(default: " not in str(one.help)]
        assert silent == []

    def test_flags_of_all_losses(self) -> None:
        text = create_unimodal_parser().format_help()
        for flag in ("--isogclr-rho", "--simclr-temperature", "--barlow-twins-redundancy-weight"):
            assert flag in text
        assert "--isogclr-preset" not in text

    def test_the_stem_follows_from_the_size(self) -> None:
        assert settings("--image-size", "64").model.stem == "cifar"
        assert settings("--image-size", "96").model.stem == "imagenet"
        assert settings("--image-size", "96", "--stem", "cifar").model.stem == "cifar"

    def test_precision_on_a_cpu(self) -> None:
        assert settings().precision == "fp32"
        assert settings("--precision", "amp_bf16").precision == "amp_bf16"

    def test_params_txt_has_what_was_decided(self) -> None:
        flags = parse_unimodal(["--data", "pictures", "--device", "cpu"])[1]
        assert (flags["stem"], flags["precision"], flags["lr"]) == ("cifar", "fp32", 0.8)


def _word(loss: str) -> str:
    return loss.replace("-", "_")


class TestRefusals:
    @pytest.mark.parametrize(
        ("argv", "said"),
        [
            ("", "there is nothing to learn from: name pictures with --data, or try --preset demo"),
            ("--data nowhere", "--data: 1 of 1 do not exist, the first is nowhere"),
            ("--data {0..2}.tar", "--data: 3 of 3 do not exist, the first is 0.tar"),
            ("--data pictures/*.tar", r"a \* is not expanded, write braces"),
            ("--data pictures --val-data nowhere", "--val-data: 1 of 1 do not exist"),
            ("--data pictures --imbalance 0.5", "--imbalance is 0.5, expected 1 or more"),
            ("--data pictures --imbalance nan", "--imbalance is nan, expected 1 or more"),
            ("--data pictures --batch-size 1", "--batch-size is 1 on one rank, but --loss isogclr needs 2 or more"),
            ("--data pictures --batch-size 0", "--batch-size is 0, but must be 1 or more"),
            ("--data pictures --lr -1", "--lr is -1.0, but must be 0 or more"),
            ("--data pictures --momentum 1", r"--momentum is 1.0, but must be a number in \[0, 1\)"),
            ("--data pictures --epochs 5", "--warmup-epochs is 10, more than the 5 of --epochs"),
            ("--data pictures --projector 8192x3", "--projector '8192x3': expected the widths of its layers"),
            ("--data pictures --preset cifar", "argument --preset: invalid choice: 'cifar'"),
            ("--data pictures --loss clip", "argument --loss: invalid choice: 'clip'"),
            ("--data pictures --los isogclr", "unrecognized arguments: --los isogclr"),
            ("--data pictures --simclr-temperature 0.1", "--simclr-temperature belongs to --loss simclr"),
            ("--data pictures --isogclr-rho -1", "--isogclr-rho is -1.0, but must be"),
            ("--data pictures --beta1 0.5", "--beta1 belongs to --opt adamw, but --opt is lars"),
            ("--data pictures --opt adamw --nesterov", "--nesterov belongs to --opt lars or sgd"),
            ("--data pictures --device toaster", "--device is toaster, which is no device of torch"),
            ("--data pictures --report-to paper", "--report-to is paper, but must be of wandb, tensorboard"),
            ("--data pictures --max-bad-steps 0", "--max-bad-steps is 0, but must be 1 or more"),
            ("--data pictures --max-rollbacks 2", "--max-rollbacks belongs to --on-divergence rollback"),
            ("--data pictures --on-divergence rollback --logs none", "rollback needs commits to go back to"),
            ("--data pictures --name ../a", "--name ../a leaves --logs"),
            ("--data pictures --name a\x1b[31mb", "has characters that a terminal obeys"),
            ("--data pictures --seed -1", "--seed is -1, but must be 0 or more"),
            ("--data pictures --seed 99999999999999999999", "--seed is 9+, but must be 0 or more, and below"),
            ("--data pictures --image-size 1", "--image-size is 1, but must be 2 or more"),
            ("--data pictures --projector 99999999999-8", "--projector .* has a layer of 99,999,999,999, expected"),
        ],
    )
    def test_one_line_each(self, argv: str, said: str) -> None:
        (problem,) = problems(*argv.split())
        assert re.search(said, problem), problem
        assert "\n" not in problem

    def test_empty_words(self) -> None:
        (problem,) = problems("--data", "")
        assert problem.startswith("there is nothing to learn from: name pictures with --data")
        (problem,) = problems("--data", "pictures", "--name", "")
        assert problem.startswith("--name '' is empty")

    def test_all_at_once(self) -> None:
        assert len(problems("--data", "nowhere", "--imbalance", "0", "--lr", "-1", "--name", "/a")) == 4

    def test_one_picture_per_rank_has_negatives_elsewhere(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("WORLD_SIZE", "2")
        assert settings("--batch-size", "1").data is not None

    def test_synchronised_batch_norm_on_cpus(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("WORLD_SIZE", "2")
        (problem,) = problems("--data", "pictures", "--device", "cpu", "--sync-bn")
        assert problem.startswith("--sync-bn needs GPUs")

    def test_the_exit_code(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        from training.run import run  # noqa: PLC0415
        from training.signals import StopRequest  # noqa: PLC0415
        from training.views.view_program import UnimodalProgram  # noqa: PLC0415

        monkeypatch.delenv("RANK", raising=False)
        monkeypatch.delenv("SLURM_PROCID", raising=False)
        stop: Any = StopRequest()
        assert run(UnimodalProgram, ["--data", "nowhere"], stop) == 2
        said = capsys.readouterr().err.splitlines()
        assert said == [
            "python -m training.unimodal: error:",
            "  --data: 1 of 1 do not exist, the first is nowhere",
        ]
