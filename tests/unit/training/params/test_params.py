"""The command line: what is understood, what is refused and why."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from isogclr.config import PRESETS, ISogCLRConfig
from isogclr.errors import ConfigError
from isogclr.losses import LOSSES
from training import open_clip_bridge, params
from training.params.flags import create_parser
from training.params.loss_flags import LOSS_CONFIGS, loss_flags
from training.settings import DivergenceSettings, Settings

TRAIN = ("--train-data", "a.tar")


def settings(*argv: str) -> Settings:
    return params.parse([*TRAIN, *argv])[0]


def problems(*argv: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        params.parse(list(argv))
    return list(caught.value.problems)


class TestLossFlag:
    def test_clip_is_the_default(self) -> None:
        assert settings().loss.name == "clip"

    @pytest.mark.parametrize(
        "argv", ["--loss isogclr --seed 4", "--seed 4 --loss isogclr", "--loss=isogclr --seed=4"]
    )
    def test_open_clip_never_sees_it(self, argv: str) -> None:
        found, theirs = params.parse([*TRAIN, *argv.split()])
        assert (found.loss.name, found.run.seed, theirs.loss_dist_impl) == ("isogclr", 4, None)

    @pytest.mark.parametrize("place", range(3))
    def test_it_may_stand_anywhere(self, place: int) -> None:
        parts = [["--aug-cfg", "scale=(0.9,1.0)", "ratio=(1.0,1.0)"], ["--train-data", "a.tar"]]
        parts.insert(place, ["--loss", "isogclr"])
        found, theirs = params.parse([word for part in parts for word in part])
        assert found.loss.name == "isogclr"
        assert theirs.aug_cfg == {"scale": (0.9, 1.0), "ratio": (1.0, 1.0)}

    @pytest.mark.parametrize("flag", ["--los", "--lo", "--l", "--los=isogclr"])
    def test_it_has_no_abbreviation(self, flag: str) -> None:
        (problem,) = problems(*TRAIN, flag, *([] if "=" in flag else ["isogclr"]))
        assert (
            problem
            == f"{flag.split('=', maxsplit=1)[0]}: found an abbreviation, expected the whole flag: write --loss"
        )

    def test_what_begins_like_it_is_open_clips(self) -> None:
        found, theirs = params.parse([*TRAIN, "--siglip", "--loss-dist-impl", "gather", "--log-every", "7"])
        assert (found.loss.options, found.run.log_every_n_steps) == ({"dist_impl": "gather"}, 7)
        assert theirs.siglip

    def test_an_unknown_loss(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as caught:
            settings("--loss", "isoclr")
        assert caught.value.code == 2
        assert "invalid choice: 'isoclr'" in capsys.readouterr().err

    @pytest.mark.parametrize("argv", [["--siglip"], ["--loss", "siglip"], ["--siglip", "--loss", "siglip"]])
    def test_siglip_has_two_names(self, argv: list[str]) -> None:
        found, theirs = params.parse([*TRAIN, *argv])
        assert (found.loss.name, theirs.siglip) == ("siglip", True)
        assert found.model.factory_options["init_logit_bias"] == -10
        assert "init_logit_bias" not in settings().model.factory_options

    def test_options_of_the_loss_arrive(self) -> None:
        found = settings("--loss", "isogclr", "--isogclr-rho", "1.5", "--isogclr-normalized-weights").loss
        assert found.options == {"rho": 1.5, "normalized_weights": True}
        decaying = settings(
            *("--loss", "sogclr", "--sogclr-gamma-schedule", "cosine", "--sogclr-gamma-decay-epochs", "3")
        ).loss
        assert (decaying.options, decaying.gamma_decay_epochs) == ({"gamma_schedule": "cosine"}, 3.0)

    def test_a_preset_fills_in_what_is_not_given(self) -> None:
        found = settings("--loss", "isogclr", "--isogclr-preset", "paper", "--isogclr-rho", "1.5").loss
        assert (found.preset, found.options) == ("paper", {**PRESETS["paper"], "rho": 1.5})
        assert ISogCLRConfig.preset("paper", rho=1.5) == ISogCLRConfig(**found.options)
        with pytest.raises(ConfigError, match="one of"):
            ISogCLRConfig.preset("best")

    @pytest.mark.parametrize("argv", [[], ["--isogclr-preset", "recommended"]])
    def test_without_a_preset_it_is_the_recommended_one(self, argv: list[str]) -> None:
        found = settings("--loss", "isogclr", *argv).loss
        assert found.preset == "recommended"
        assert ISogCLRConfig(**found.options) == ISogCLRConfig() == ISogCLRConfig.preset("recommended")
        assert settings("--loss", "sogclr").loss.preset is None

    def test_the_papers_preset_is_the_recipe(self) -> None:
        """Values of the paper (γ, ρ, τ_init) and of the authors' code (η)."""
        recipe = ISogCLRConfig(**settings("--loss", "isogclr", "--isogclr-preset", "paper").loss.options)
        assert (recipe.gamma, recipe.rho, recipe.temperature_init) == (0.8, 6.0, 0.01)
        assert (recipe.temperature_optimizer, recipe.temperature_rate_at()(0)) == ("momentum", 0.03)
        assert (recipe.normalized_weights, recipe.carry_mean) == (False, False)

    def test_what_is_on_can_be_turned_off(self) -> None:
        found = settings("--loss", "isogclr", "--no-isogclr-carry-mean").loss
        assert found.options == {"carry_mean": False}
        assert ISogCLRConfig().carry_mean

    def test_open_clips_options_arrive_at_its_loss(self) -> None:
        found = settings("--local-loss", "--gather-with-grad").loss
        assert found.options == {"local_loss": True, "gather_with_grad": True, "cache_labels": True}


class TestRefusals:
    @pytest.mark.parametrize(
        ("argv", "words"),
        [
            ("--horovod", "--horovod is not supported: the loss exchanges through torch.distributed"),
            ("--distill-model RN50", "--distill-model and --distill-pretrained are not supported"),
            ("--distill-pretrained x", "--distill-model and --distill-pretrained are not supported"),
            ("--model coca_ViT-B-32", "--model coca_ViT-B-32 is not supported: CoCa"),
            ("--coca-caption-loss-weight 1", "--coca-caption-loss-weight is not supported: it belongs to CoCa"),
            ("--coca-contrastive-loss-weight 2", "--coca-contrastive-loss-weight is not supported"),
            ("--ddp-static-graph --accum-freq 2", "--ddp-static-graph and --accum-freq above 1 do not go together"),
            ("--siglip --loss isogclr", "--siglip and --loss isogclr name two losses"),
            ("--siglip --loss clip", "--siglip and --loss clip name two losses"),
            ("--loss-dist-impl gather", "--loss-dist-impl belongs to --loss siglip"),
            ("--isogclr-rho 3", "--isogclr-rho belongs to --loss isogclr, but --loss is clip"),
            ("--loss sogclr --isogclr-gamma 1", "--isogclr-gamma belongs to --loss isogclr, but --loss is sogclr"),
            ("--siglip --cyclip-validate", "--cyclip-validate belongs to --loss cyclip, but --loss is siglip"),
            ("--trace", "--trace is not supported: torch can not trace a model that returns a dict"),
            ("--resume latest --remote-sync s3://x", "--resume latest looks for generations on disk"),
            ("--use-bnb-linear SwitchBackLinear", "--use-bnb-linear needs the package bitsandbytes"),
            ("--imagenet-v2 x", "--imagenet-v2 needs the package imagenetv2_pytorch"),
            ("--report-to wandb", "--report-to wandb needs the package wandb"),
            ("--report-to paper", "--report-to is paper, but must be of wandb, tensorboard or all"),
            ("--text-model /no/such", "--text-model /no/such is no folder"),
            ("--batch-size 0", "--batch-size is 0, expected 1 or more"),
            ("--accum-freq 0", "--accum-freq is 0, expected 1 or more"),
            ("--workers -1", "--workers is -1, expected 0 or more"),
            ("--train-num-samples 0", "--train-num-samples is 0, expected 1 or more"),
            ("--epochs 0", "--epochs is 0, but must be 1 or more"),
            ("--log-every-n-steps 0", "--log-every-n-steps is 0, but must be 1 or more"),
            ("--eval-every-n-epochs 0", "--eval-every-n-epochs is 0, but must be 1 or more"),
            ("--eval-suite x", "--eval-suite and --eval-data-root go together"),
            ("--eval-dataset x y", "--eval-dataset chooses from a suite: name it with --eval-suite"),
            ("--save-every-n-steps 0", "--save-every-n-steps is 0, but must be 1 or more"),
            ("--lr-scheduler linear", "--lr-scheduler is linear, but must be one of cosine, const, const-cooldown"),
            ("--lr-scheduler const-cooldown", "--lr-scheduler const-cooldown needs --epochs-cooldown"),
            ("--opt sgd", "--opt is sgd, but must be adamw or timm/NAME"),
            ("--opt timm/lamb --beta1 0.9", "--beta1 and --beta2: a timm optimizer takes both or none"),
            ("--train-data x.zip", "--train-data x.zip ends neither in .tar nor in .csv or .tsv"),
            ("--dataset-type synthetic", "synthetic data has no size of its own: say it with --train-num-samples"),
            ("--train-data-upsampling-factors 2", "--train-data-upsampling-factors needs --dataset-resampled"),
            ("--loss isogclr --isogclr-gamma 2", "--isogclr-gamma is 2.0, but must be a number in (0, 1]"),
            (
                "--loss isogclr --isogclr-gamma-decay-epochs 2",
                "--isogclr-gamma-decay-epochs needs --isogclr-gamma-schedule cosine",
            ),
            ("--aug-cfg scale", "--aug-cfg can not be read"),
            ("--lr abc", "argument --lr: invalid float value: 'abc'"),
            ("--lr nan", "--lr is nan, but must be 0 or more, and finite"),
            ("--lr inf", "--lr is inf, but must be 0 or more, and finite"),
            ("--lr -1", "--lr is -1.0, but must be 0 or more"),
            ("--wd -1", "--wd is -1.0, but must be 0 or more"),
            ("--warmup -1", "--warmup is -1, but must be 0 or more"),
            ("--beta2 1", "--beta2 is 1.0, but must be a number in [0, 1)"),
            ("--device gpu", "--device is gpu, which is no device of torch: write cpu, cuda, cuda:1 or mps"),
            ("--device cuda:x", "--device is cuda:x, which is no device of torch"),
            ("--device cuda:99", "--device is cuda:99, but torch sees "),
            ("--model RN5O", "--model RN5O is not known to open_clip: did you mean RN50?"),
            ("--model vit-b-32", "--model vit-b-32 is not known to open_clip: did you mean ViT-B-32?"),
            ("--model @@@@", "--model @@@@ is not known to open_clip"),
            (
                "--model local-dir:/no/such",
                "--model local-dir:/no/such: there is no /no/such/open_clip_config",
            ),
            ("--pretrained /no/x.pt", "--pretrained /no/x.pt is neither a file nor a tag (tags of --model RN50: "),
            ("--pretrained openia", "--pretrained openia is neither a file nor a tag: did you mean openai?"),
            ("--name ../x", "--name ../x leaves --logs"),
            ("--name a/../../x", "--name a/../../x leaves --logs"),
            ("--name /tmp/x", "--name /tmp/x leaves --logs"),
            ("--name .", "--name . leaves --logs"),
            ("--seed -1", "--seed is -1, but must be 0 or more, and below 2,147,483,648"),
            ("--seed 99999999999999999999", "--seed is 99999999999999999999, but must be 0 or more"),
            (f"--name {'ü' * 128}", f"--name {'ü' * 20}… has 256 bytes, but a folder's name has at most 255"),
            ("--logs /etc/passwd", "--logs /etc/passwd: /etc/passwd is a file; give a folder"),
            ("--logs /etc/passwd/x", "--logs /etc/passwd/x: /etc/passwd is a file; give a folder"),
            ("--train-data s-*.tar", "--train-data s-*.tar: a * is not expanded; write braces"),
            (
                "--train-data s-0.tar s-1.tar s-2.tar",
                "--train-data: found 3 words, s-0.tar … s-2.tar, expected",
            ),
            ("--val-data s-0.tar s-1.tar --seed 3", "--val-data: found 2 words, s-0.tar … s-1.tar, expected one"),
            ("--loss isogclr --batch-size 1", "--batch-size is 1 on one rank, but --loss isogclr needs 2 or more"),
            ("--report-to tensorboard", "--report-to tensorboard needs the package tensorboard"),
            ("--aug-cfg scale=(1,", "--aug-cfg can not be read"),
        ],
    )
    def test_by_name_and_reason(self, monkeypatch: pytest.MonkeyPatch, argv: str, words: str) -> None:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
        (problem,) = problems(*TRAIN, *argv.split())
        assert problem.startswith(words)

    @pytest.mark.parametrize(
        "argv",
        [
            "--name a/b",
            "--name run..2",
            "--lr 0 --wd 0 --warmup 0",
            "--model ViT-B/32 --pretrained openai",
            "--model hf-hub:some/model --pretrained x",
            "--train-data pipe:cat~*.tar",
            "--loss isogclr --batch-size 1 --accum-freq 2",
            "--loss clip --batch-size 1",
        ],
    )
    def test_what_only_looks_like_a_mistake(self, argv: str) -> None:
        settings(*(word.replace("~", " ") for word in argv.split()))

    def test_one_pair_per_rank(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("WORLD_SIZE", "2")
        assert settings("--loss", "isogclr", "--batch-size", "1").loss.name == "isogclr"

    def test_a_folder_is_no_package(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """`python -m` looks for packages where it is started, and there wandb keeps its runs."""
        (tmp_path / "bitsandbytes").mkdir()
        monkeypatch.syspath_prepend(tmp_path)
        (problem,) = problems(*TRAIN, "--use-bnb-linear", "SwitchBackLinear")
        assert problem.startswith("--use-bnb-linear needs the package bitsandbytes, which is not installed")

    def test_nothing_to_do(self) -> None:
        assert problems("--epochs", "3") == [
            "nothing to do: give --train-data, --val-data, --imagenet-val or --imagenet-v2"
        ]

    def test_all_together(self) -> None:
        line = (
            "--horovod --opt sgd --batch-size 0 --loss isogclr --isogclr-rho -1 --isogclr-gamma 7 --cyclip-validate"
        )
        found = problems(*TRAIN, *line.split())
        starts = ("--horovod", "--cyclip-validate", "--opt", "--batch-size", "--isogclr-gamma", "--isogclr-rho")
        assert sorted(problem.split()[0] for problem in found) == sorted(starts)

    def test_the_loss_is_not_blamed_for_what_another_flag_did(self) -> None:
        assert problems(*TRAIN, "--siglip", "--loss", "isogclr") == [
            "--siglip and --loss isogclr name two losses: leave one out"
        ]

    def test_packages_that_are_there(self) -> None:
        found = settings("--report-to", "tensorboard").run
        assert (found.tensorboard, found.wandb) == (True, False)

    @pytest.mark.parametrize("words", ["all", "wandb,tensorboard", "tensorboard, wandb"])
    def test_reports_are_read_as_open_clip_reads_them(self, monkeypatch: pytest.MonkeyPatch, words: str) -> None:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: SimpleNamespace(origin=name))
        found = settings("--report-to", words).run
        assert (found.tensorboard, found.wandb) == (True, True)


class TestNotices:
    def test_precision_without_an_accelerator(self) -> None:
        assert not torch.cuda.is_available()
        found = settings()
        assert found.model.precision == "fp32"
        assert found.notices == (
            "--precision is fp32: there is no accelerator, and half precision on a CPU is slow or missing",
        )

    @pytest.mark.parametrize("argv", [["--precision", "amp"], ["--precision=amp"], ["--prec", "amp"]])
    def test_precision_that_was_asked_for(self, argv: list[str]) -> None:
        found, theirs = params.parse([*TRAIN, *argv])
        assert (found.model.precision, theirs.precision, found.notices) == ("amp", "amp", ())

    def test_open_clip_evaluates_in_the_same_precision(self) -> None:
        assert params.parse([*TRAIN, "--pretrained", "openai"])[1].precision == "fp32"

    def test_an_accelerator_keeps_open_clips_default(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(open_clip_bridge, "is_accelerated", lambda args: True)
        assert settings().model.precision == "amp"

    def test_flags_that_an_exact_gradient_does_not_need(self) -> None:
        found = settings("--loss", "isogclr", "--local-loss", "--gather-with-grad", "--precision", "fp32")
        assert [notice.split()[0] for notice in found.notices] == ["--local-loss", "--gather-with-grad"]


class TestWhereFlagsGo:
    def test_evaluation_only(self) -> None:
        assert params.parse(["--val-data", "a.tar"])[0].data is None
        assert params.parse(["--imagenet-val", "x"])[0].data is None

    def test_synthetic_data_needs_no_path(self) -> None:
        found = params.parse(["--dataset-type", "synthetic", "--train-num-samples", "10"])[0].data
        assert found is not None
        assert (found.kind, found.num_samples, found.train_data) == ("synthetic", 10, None)

    @pytest.mark.parametrize(
        ("argv", "part", "expected"),
        [
            ("--logs none", "run", {"logs": None}),
            ("--logs x --name y", "run", {"logs": Path("x"), "name": "y"}),
            ("--save-frequency 0 --save-most-recent", "run", {"save_frequency": 0, "save_most_recent": True}),
            ("--save-every-n-steps 5 --index i", "run", {"save_every_n_steps": 5, "index": Path("i")}),
            ("--isogclr-state-dir $SCRATCH/s", "run", {"state_dir": Path("/local/s")}),
            ("--wandb-project-name p --wandb-notes n", "run", {"wandb_project": "p", "wandb_notes": "n"}),
            ("--lr 2 --wd 3 --warmup 4", "optimizer", {"lr": 2.0, "weight_decay": 3.0, "warmup_steps": 4}),
            ("--model ViT-B-32", "optimizer", {"lr": 5e-4, "beta2": 0.98, "eps": 1e-6}),  # by open_clip's rule
            ("--opt TIMM/Lamb", "optimizer", {"name": "timm/lamb"}),
            ("--skip-scheduler --grad-clip-norm 1", "optimizer", {"skip_scheduler": True, "grad_clip_norm": 1.0}),
            ("--lock-image --lock-image-unlocked-groups 2", "model", {"lock_image_unlocked_groups": 2}),
            ("--lock-text --lock-text-freeze-layer-norm", "model", {"lock_text_freeze_layer_norm": True}),
            ("--csv-separator , --csv-img-key i", "data", {"csv_separator": ",", "csv_image_key": "i"}),
            ("--dataset-resampled --seed 3", "data", {"resampled": True, "seed": 3}),
        ],
    )
    def test_values(self, monkeypatch: pytest.MonkeyPatch, argv: str, part: str, expected: dict[str, Any]) -> None:
        monkeypatch.setenv("SCRATCH", "/local")
        found = dataclasses.asdict(getattr(settings(*argv.split()), part))
        assert {name: found[name] for name in expected} == expected

    @pytest.mark.parametrize(("argv", "size"), [("32", 32), ("32 48", [32, 48])])
    def test_image_size(self, argv: str, size: int | list[int]) -> None:
        options = settings("--force-image-size", *argv.split()).model.factory_options
        assert options["force_image_size"] == size

    def test_the_text_tower(self, tmp_path: Path) -> None:
        found = settings("--text-model", str(tmp_path), "--no-pretrained-text").model
        assert (found.text_model, found.factory_options["pretrained_text"]) == (tmp_path, False)


class TestHelp:
    @pytest.fixture
    def text(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
        monkeypatch.setenv("COLUMNS", "110")
        with pytest.raises(SystemExit) as caught:
            params.parse(["--help"])
        assert caught.value.code == 0
        return capsys.readouterr().out

    def test_every_option_of_ours_has_a_meaning_and_a_default(self, text: str) -> None:
        ours = text.partition("and every flag of open_clip_train.main:")[0]
        entries = re.split(r"\n  (?=-)", ours.partition("loss, sample identity and state:")[2])
        found = {re.split(r"[\s,]", entry, maxsplit=1)[0]: " ".join(entry.split()) for entry in entries[1:]}
        own = create_parser()._actions[1:]
        assert set(found) == {action.option_strings[0] for action in own}
        for flag, entry in found.items():
            assert "(default: " in entry, flag
            assert len(entry.partition("(default")[0].split()) > 3, flag
        assert not re.search(r"None|_steps", ours)

    def test_groups_stand_in_order(self, text: str) -> None:
        places = [text.index(f"\n--loss {loss}:\n") for loss in LOSS_CONFIGS]
        assert places == sorted(places)
        assert text.index("loss, sample identity and state:") < places[0]
        assert f"  --loss {{{','.join(LOSSES)}}}" in text
        for one in loss_flags():
            after = text.index(f"\n--loss {one.loss}:\n")
            assert re.search(rf"\n  {one.flag}[\s,]", text[after:])

    def test_open_clips_flags_follow(self, text: str) -> None:
        theirs = text.partition("and every flag of open_clip_train.main:")[2]
        for flag in ("--train-data TRAIN_DATA", "--accum-freq ACCUM_FREQ", "--loss-dist-impl", "--imagenet-val"):
            assert f"  {flag}" in theirs
        assert "usage:" not in theirs

    @pytest.mark.parametrize("flag", ["-h", "--help"])
    def test_it_wins_over_problems(self, flag: str) -> None:
        with pytest.raises(SystemExit) as caught:
            params.parse(["--horovod", flag])
        assert caught.value.code == 0


def test_no_flag_of_ours_is_one_of_open_clips() -> None:
    own = {flag for action in create_parser()._actions for flag in action.option_strings} - {"-h", "--help"}
    theirs = {f"--{name.replace('_', '-')}" for name in vars(open_clip_bridge.parse_args([]))}
    assert own & theirs == set()


class TestDivergence:
    def test_defaults(self) -> None:
        assert settings().divergence == DivergenceSettings(20, False, 0.5, 3)

    def test_values(self) -> None:
        line = "--max-bad-steps 5 --on-divergence rollback --rollback-lr-factor 0.1 --max-rollbacks 7"
        assert settings(*line.split()).divergence == DivergenceSettings(5, True, 0.1, 7)

    @pytest.mark.parametrize(
        ("line", "problem"),
        [
            ("--max-bad-steps 0", "--max-bad-steps is 0, but must be 1 or more"),
            ("--on-divergence rollback --max-rollbacks 0", "--max-rollbacks is 0, but must be 1 or more"),
            (
                "--on-divergence rollback --rollback-lr-factor 1",
                "--rollback-lr-factor is 1.0, but must be between 0 and 1",
            ),
            (
                "--max-rollbacks 2",
                "--max-rollbacks belongs to --on-divergence rollback: leave it out, or add that",
            ),
            (
                "--on-divergence rollback --logs none",
                "--on-divergence rollback needs commits to go back to, and --logs none makes none",
            ),
        ],
    )
    def test_refusals(self, line: str, problem: str) -> None:
        assert problems(*TRAIN, *line.split()) == [problem]
