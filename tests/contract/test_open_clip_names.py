"""What the trainer relies on in open_clip and open_clip_train: a release that changes it fails here first.

Three kinds: flags, each with who honours it; signatures of what is called; and the text of functions whose work
`training` does itself. When a digest fails, read what has changed there, follow it, and update the digest.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import inspect
import textwrap
from argparse import Namespace
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import open_clip
import open_clip.loss
import open_clip.utils
import open_clip_train.data
import open_clip_train.distributed
import open_clip_train.file_utils
import open_clip_train.logger
import open_clip_train.main
import open_clip_train.params
import open_clip_train.precision
import open_clip_train.scheduler
import open_clip_train.train
import open_clip_train.zero_shot
import pytest
import torch

from isogclr.distributed import Ranks
from training import open_clip_bridge, params
from training.loss import create_loss

# open_clip's functions that get the whole of its arguments from the bridge.
DEVICE = [open_clip_train.distributed.init_distributed_device]
EVALUATION = [
    open_clip_train.train.evaluate,
    open_clip_train.zero_shot.zero_shot_eval,
    open_clip_train.data.get_data,
    open_clip_train.data.get_wds_dataset,
    open_clip_train.data.get_imagenet,
]
REMOTE_SYNC = [open_clip_bridge.OpenClip.start_remote_sync]

# Every flag of open_clip_train.main 3.3.0, by who honours it. `params` reads it into our settings or refuses it.
FLAGS = {
    "device": "device dist_url dist_backend no_set_device_rank",
    "evaluation": "val_data val_num_samples imagenet_val imagenet_v2 zeroshot_frequency val_frequency",
    "remote_sync": "remote_sync remote_sync_frequency remote_sync_protocol",
    "params": """
        train_data train_data_upsampling_factors train_num_samples dataset_type dataset_resampled csv_separator
        csv_img_key csv_caption_key cache_dir logs log_local name workers batch_size epochs epochs_cooldown lr beta1
        beta2 eps wd momentum warmup opt use_bn_sync skip_scheduler lr_scheduler lr_cooldown_end lr_cooldown_power
        save_frequency save_most_recent resume precision model pretrained pretrained_image lock_image
        lock_image_unlocked_groups lock_image_freeze_bn_stats image_mean image_std image_interpolation
        image_resize_mode aug_cfg grad_checkpointing local_loss gather_with_grad force_context_length
        force_image_size force_quick_gelu force_patch_dropout force_custom_text torchscript torchcompile trace
        accum_freq report_to wandb_notes wandb_project_name debug copy_codebase horovod ddp_static_graph seed
        grad_clip_norm lock_text lock_text_unlocked_layers lock_text_freeze_layer_norm log_every_n_steps
        coca_caption_loss_weight coca_contrastive_loss_weight delete_previous_checkpoint distill_model
        distill_pretrained use_bnb_linear siglip loss_dist_impl
    """,
}


def flags_of_open_clip(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """From its parser, which it makes in the middle of a function."""
    found: list[argparse.ArgumentParser] = []

    def take(parser: argparse.ArgumentParser, *_: Any) -> Namespace:
        found.append(parser)
        return Namespace(opt="timm")

    with monkeypatch.context() as patch:
        patch.setattr(argparse.ArgumentParser, "parse_args", take)
        open_clip_train.params.parse_args([])
    return {action.dest for action in found[0]._actions} - {"help"}


class Recorded(Namespace):
    """Arguments that remember which of them were read."""

    def __init__(self, read: set[str], values: dict[str, Any]) -> None:
        super().__init__(**values)
        object.__setattr__(self, "_read", read)

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("_"):
            object.__getattribute__(self, "_read").add(name)
        return object.__getattribute__(self, name)


def read_by_params(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    read: set[str] = set()
    original = open_clip_bridge.parse_args
    with monkeypatch.context() as patch:
        patch.setattr(open_clip_bridge, "parse_args", lambda rest: Recorded(read, vars(original(rest))))
        for line in ("--train-data a.tar", "--train-data a.tar --siglip", "--train-data a.tar --opt timm/sgd"):
            params.parse(line.split())
    return read


def named_in(functions: Iterable[Callable[..., Any]]) -> set[str]:
    """Attributes and words in the text of functions: `args.x`, `getattr(args, "x", …)`."""
    found: set[str] = set()
    for function in functions:
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))):
            if isinstance(node, ast.Attribute):
                found.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
    return found


def test_every_flag_of_open_clip_is_honoured_by_somebody(monkeypatch: pytest.MonkeyPatch) -> None:
    known = [flag for flags in FLAGS.values() for flag in flags.split()]
    assert len(known) == len(set(known))
    there = flags_of_open_clip(monkeypatch)
    assert there - set(known) == set(), "new flags: honour them in params or the bridge, or refuse them by name"
    assert set(known) - there == set(), "flags that open_clip has dropped"


def test_those_who_honour_a_flag_read_it(monkeypatch: pytest.MonkeyPatch) -> None:
    readers = {
        "params": read_by_params(monkeypatch),
        "device": named_in(DEVICE),
        "evaluation": named_in(EVALUATION),
        "remote_sync": named_in(REMOTE_SYNC),
    }
    ignored = {who: set(flags.split()) - readers[who] for who, flags in FLAGS.items()}
    assert ignored == {who: set() for who in FLAGS}


SIGNATURES: list[tuple[Callable[..., Any], str]] = [
    (open_clip_train.params.parse_args, "args"),
    (open_clip_train.distributed.is_device_available, "device"),
    (open_clip_train.distributed.init_distributed_device, "args"),
    (open_clip_train.data.tarfile_to_samples_nothrow, "src handler"),
    (open_clip_train.data.expand_urls, "urls weights"),
    (open_clip_train.data.get_data, "args preprocess_fns epoch tokenizer"),
    (open_clip_train.logger.setup_logging, "log_file level include_host"),
    (open_clip_train.precision.get_autocast, "precision device_type"),
    (open_clip_train.scheduler.cosine_lr, "optimizer base_lr warmup_length steps"),
    (open_clip_train.scheduler.const_lr, "optimizer base_lr warmup_length steps"),
    (
        open_clip_train.scheduler.const_lr_cooldown,
        "optimizer base_lr warmup_length steps cooldown_steps cooldown_power cooldown_end_lr",
    ),
    (open_clip_train.train.evaluate, "model data epoch args tb_writer tokenizer"),
    (open_clip_train.file_utils.remote_sync, "local_dir remote_dir protocol"),
    (open_clip.get_tokenizer, "model_name context_length cache_dir kwargs"),
    (open_clip.get_model_config, "model_name"),
    (open_clip.get_model_preprocess_cfg, "model"),
    (open_clip.get_input_dtype, "precision"),
    (open_clip.add_model_config, "path"),
    (open_clip.list_models, ""),
    (open_clip.utils.replace_linear, "model linear_replacement include_modules copy_weights"),
    (open_clip.CLIP.lock_image_tower, "self unlocked_groups freeze_bn_stats"),
    (open_clip.CLIP.lock_text_tower, "self unlocked_layers freeze_layer_norm"),
    (open_clip.CLIP.set_grad_checkpointing, "self enable"),
    (open_clip.CustomTextCLIP.lock_image_tower, "self unlocked_groups freeze_bn_stats"),
    (open_clip.CustomTextCLIP.lock_text_tower, "self unlocked_layers freeze_layer_norm"),
    (open_clip.CustomTextCLIP.set_grad_checkpointing, "self enable"),
    (
        open_clip.loss.ClipLoss,
        "local_loss gather_with_grad cache_labels rank world_size use_horovod",
    ),
    (open_clip.loss.SigLipLoss, "cache_labels rank world_size dist_impl"),
    (open_clip.loss.ClipLoss.forward, "self image_features text_features logit_scale logit_bias output_dict"),
    (open_clip.loss.SigLipLoss.forward, "self image_features text_features logit_scale logit_bias output_dict"),
]


@pytest.mark.parametrize(("called", "expected"), SIGNATURES, ids=lambda one: getattr(one, "__qualname__", ""))
def test_signatures(called: Callable[..., Any], expected: str) -> None:
    assert " ".join(inspect.signature(called).parameters) == expected


def test_the_model_factory_takes_what_we_give_it() -> None:
    signature = inspect.signature(open_clip.create_model_and_transforms)
    settings, _ = params.parse(["--train-data", "a.tar", "--siglip"])
    options = dict(settings.model.factory_options)
    for option in open_clip_bridge.SIGLIP_MODEL_OPTIONS:
        assert option in inspect.signature(open_clip.CustomTextCLIP).parameters
        assert option in inspect.signature(open_clip.CLIP).parameters
        options.pop(option)
    given = {*options, "precision", "device", "output_dict"}
    assert given <= set(signature.parameters)
    assert [*signature.parameters][:2] == ["model_name", "pretrained"]
    # A new argument would be one that open_clip's main may give and we do not.
    unused = set(signature.parameters) - given - {"model_name", "pretrained", "model_kwargs"}
    assert unused == {"load_weights", "weights_only", "pretrained_image_path", "pretrained_text_path"}


def digest(function: Callable[..., Any]) -> str:
    return hashlib.sha256(inspect.getsource(function).encode()).hexdigest()[:16]


# Their work is done again in `training`; the module says where.
REPEATED: list[tuple[Callable[..., Any], str, str]] = [
    (
        open_clip_train.main.main,
        "run.py, epochs.py, model.py, steps/, commits/",
        "90c2096dcec85aad",
    ),
    (open_clip_train.main.random_seed, "randomness.py", "aca5fdf6f07ae068"),
    (open_clip_train.main.get_latest_checkpoint, "commits/resume.py", "c6cb1eb32f88f98e"),
    (
        open_clip_train.train.train_one_epoch,
        "steps/",
        "37c2381ee38602e1",
    ),
    (open_clip_train.train.evaluate, "open_clip_bridge.py: what it wants of args", "82a886ff1a131bde"),
    (open_clip_train.zero_shot.zero_shot_eval, "open_clip_bridge.py: what it wants of args", "fca31c94306db8d5"),
    (open_clip_train.params.parse_args, "params/", "238ba0e9e7217fd2"),
    (open_clip_train.params.get_default_params, "params/", "0b4349dd1e276aa8"),
    (
        open_clip_train.distributed.init_distributed_device,
        "open_clip_bridge.py: what it sets in args",
        "ad4416133f18c620",
    ),
    (open_clip_train.data.get_wds_dataset, "data/shards.py, data/worker.py, data/epoch.py", "fed9596654e3cd59"),
    (open_clip_train.data.detshuffle2, "data/shards.py", "2d66e8c7817adb36"),
    (open_clip_train.data.ResampledShards2, "data/shards.py", "46636a9d6d63818f"),
    (open_clip_train.data.group_by_keys_nothrow, "isogclr/shard_index", "cd7c95225e63880d"),
    (open_clip_train.data.filter_no_caption_or_no_image, "data/image_text.py", "b293183556b19109"),
    (open_clip_train.data.CsvDataset, "data/tables.py", "ab75bf77225e63a2"),
    (open_clip_train.data.get_csv_dataset, "data/tables.py", "68b3a9031ec4cae8"),
    (open_clip_train.data.SyntheticDataset, "data/tables.py", "dcbe4513cd659422"),
    (open_clip_train.data.get_synthetic_dataset, "data/tables.py", "778ba12e0cb1a34d"),
    (open_clip_train.data.get_dataset_fn, "settings.py", "8e3cfc7608a7a6ef"),
    (open_clip.create_loss, "loss.py", "78044133292a9914"),
]


@pytest.mark.parametrize(("function", "where", "expected"), REPEATED, ids=lambda one: getattr(one, "__name__", ""))
def test_functions_that_we_repeat_are_those_that_we_have_read(
    function: Callable[..., Any], where: str, expected: str
) -> None:
    assert digest(function) == expected, f"{function.__qualname__} has changed: follow it in training/{where}"


def test_constants_that_stand_inside_functions() -> None:
    main, step = (
        inspect.getsource(one) for one in (open_clip_train.main.main, open_clip_train.train.train_one_epoch)
    )
    assert "model_kwargs['init_logit_scale'] = np.log(10)" in main
    assert "model_kwargs['init_logit_bias'] = -10" in main
    assert {
        "init_logit_scale": pytest.approx(2.302585093, rel=1e-9),
        "init_logit_bias": -10,
    } == open_clip_bridge.SIGLIP_MODEL_OPTIONS
    assert "logit_scale.clamp_(0, math.log(100))" in step
    assert pytest.approx(4.605170186, rel=1e-9) == open_clip_bridge.MAX_LOG_LOGIT_SCALE
    assert all(f'args.lr_scheduler == "{name}"' in main for name in open_clip_bridge.SCHEDULERS)


def test_the_device_fills_in_arguments_that_the_bridge_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "SLURM_PROCID", "SLURM_NTASKS"):
        monkeypatch.delenv(name, raising=False)
    args = open_clip_train.params.parse_args(["--device", "cpu"])
    before = set(vars(args))
    assert open_clip_train.distributed.init_distributed_device(args) == torch.device("cpu")
    assert set(vars(args)) - before == {"rank", "local_rank", "world_size", "distributed"}
    assert open_clip_train.distributed.is_device_available("cpu") == (True, True)


def test_schedules() -> None:
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=9.0)
    cosine = open_clip_bridge.learning_rate("cosine", optimizer, 1.0, 2, 10, None)
    assert [cosine(step) for step in (0, 1, 2, 6)] == pytest.approx([0.5, 1.0, 1.0, 0.5])
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.5)
    constant = open_clip_bridge.learning_rate("const", optimizer, 1.0, 2, 10, None)
    assert [constant(step) for step in (0, 1, 9)] == pytest.approx([0.5, 1.0, 1.0])
    cooldown = open_clip_bridge.Cooldown(steps=4, power=1.0, end=0.2)
    cooled = open_clip_bridge.learning_rate("const-cooldown", optimizer, 1.0, 0, 10, cooldown)
    assert [cooled(step) for step in (0, 5, 6, 8, 10)] == pytest.approx([1.0, 1.0, 1.0, 0.6, 0.2])
    assert cosine(6.5) == pytest.approx(0.4024548, rel=1e-6)  # a resumed epoch may take steps between steps


def tiny_model(**options: Any) -> Any:
    vision = {"image_size": 16, "layers": 1, "width": 32, "head_width": 16, "patch_size": 8}
    text = {"context_length": 8, "vocab_size": 20, "width": 16, "heads": 2, "layers": 1}
    return open_clip.CLIP(16, vision, text, output_dict=True, **options)


@pytest.mark.parametrize("logit_bias", [None, -10.0])
def test_what_a_model_returns(logit_bias: float | None) -> None:
    model = tiny_model(init_logit_bias=logit_bias)
    output = model(torch.zeros(2, 3, 16, 16), torch.zeros(2, 8, dtype=torch.int64))
    expected = {"image_features", "text_features", "logit_scale"} | ({"logit_bias"} if logit_bias else set())
    assert set(output) == expected
    assert output["image_features"].norm(dim=1).tolist() == pytest.approx([1.0, 1.0], rel=1e-5)
    torch.testing.assert_close(output["logit_scale"], model.logit_scale.exp())  # the parameter is its logarithm
    assert output["logit_scale"].requires_grad


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_a_model_that_returns_a_dict_can_not_be_traced() -> None:
    """The reason why --trace is refused."""
    model = tiny_model()
    model.visual.image_size = model.visual.image_size[0]  # the factory has another problem with a pair
    with pytest.raises(RuntimeError, match="dict at the output of the tracer"):
        open_clip.trace_model(model, batch_size=2)


def test_precisions() -> None:
    factories = {
        name: open_clip_train.precision.get_autocast(name, "cpu") for name in ("fp32", "fp16", "amp", "amp_bf16")
    }
    dtypes = {name: getattr(factory(), "fast_dtype", None) for name, factory in factories.items()}
    assert dtypes == {"fp32": None, "fp16": None, "amp": torch.float16, "amp_bf16": torch.bfloat16}
    assert open_clip.get_input_dtype("amp") is None
    assert open_clip.get_input_dtype("pure_bf16") is torch.bfloat16


def test_the_losses_are_those_that_open_clip_chooses() -> None:
    for flags, name in ((["--local-loss"], "clip"), (["--siglip"], "siglip")):
        args = open_clip_train.params.parse_args(flags)
        args.rank, args.world_size, args.distill = 0, 1, False
        theirs = open_clip.create_loss(args)
        settings, _ = params.parse(["--train-data", "a.tar", *flags])
        ours = create_loss(settings.loss, Ranks(), 10, 1).inner
        assert settings.loss.name == name
        assert type(ours) is type(theirs)
        plain = {key: value for key, value in vars(theirs).items() if not key.startswith("_")}
        assert plain == {key: vars(ours)[key] for key in plain}


def test_models_of_a_folder_are_registered(tmp_path: Path) -> None:
    (tmp_path / "a-model.json").write_text('{"embed_dim": 1, "vision_cfg": {}, "text_cfg": {}}', encoding="utf-8")
    open_clip.add_model_config(tmp_path)
    assert "a-model" in open_clip.list_models()
    config = open_clip.get_model_config("a-model")
    config["embed_dim"] = 2  # a copy
    assert open_clip.get_model_config("a-model")["embed_dim"] == 1
    assert open_clip.get_model_config("no-such-model") is None
