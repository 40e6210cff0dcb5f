"""Commands of `isogclr` that measure checkpoints or hand them on: eval, linear, export."""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from pathlib import Path
from typing import TypeAlias

from isogclr.errors import InputError

_Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def positive(text: str) -> int:
    """A type of argparse's: a whole number from 1 on."""
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value


def add_eval(commands: _Commands) -> None:
    parser = commands.add_parser(
        "eval",
        help="measure checkpoints through clip_benchmark, beside the paper's figures",
        description="Retrieval and zero-shot classification of one or more checkpoints. Nothing is downloaded "
        "unasked, what was measured before is not measured again, and the exit code is 1 if something failed.",
    )
    parser.add_argument("--checkpoint", type=Path, nargs="+", required=True, metavar="FILE", help="epoch_N.pt, …")
    parser.add_argument("--data-root", type=Path, required=True, metavar="DIR", help="a folder a data set in it")
    parser.add_argument("--suite", default="paper", help="which data sets (default: %(default)s)")
    parser.add_argument("--dataset", nargs="+", default=[], metavar="NAME", help="these instead of the suite's")
    parser.add_argument("--task", choices=("zeroshot_retrieval", "zeroshot_classification"), help="only this one")
    parser.add_argument("--model", metavar="NAME", help="model of checkpoints that do not say it themselves")
    parser.add_argument(
        "--output", type=Path, default=Path("eval_results"), metavar="DIR", help="results and tables"
    )
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, … (default: %(default)s)")
    parser.add_argument("--precision", choices=("fp32", "amp", "amp_bf16"), default="fp32")
    parser.add_argument("--batch-size", type=positive, default=64, help="(default: %(default)s)")
    parser.add_argument(
        "--workers", type=int, default=0, help="processes that decode images (default: %(default)s)"
    )
    parser.add_argument("--seeds", action="store_true", help="all checkpoints are one experiment: mean ± deviation")
    parser.add_argument("--download", action="store_true", help="let clip_benchmark fetch what is missing")
    parser.add_argument("--recompute", action="store_true", help="measure again what was measured before")
    parser.add_argument("--quiet", action="store_true", help="no progress bars")
    parser.set_defaults(run=_run_eval)


def _run_eval(options: argparse.Namespace) -> int:
    from isogclr.evaluation.command import EvalRequest, run_eval  # noqa: PLC0415

    missing = [name for name in ("clip_benchmark", "torch", "open_clip") if find_spec(name) is None]
    if missing:
        raise InputError(f"found no {' and no '.join(missing)}: `isogclr eval` needs `pip install 'isogclr[eval]'`")
    return run_eval(
        EvalRequest(
            checkpoints=tuple(options.checkpoint),
            data_root=options.data_root,
            output=options.output,
            suite=options.suite,
            datasets=tuple(options.dataset),
            task=options.task,
            model=options.model,
            device=options.device,
            precision=options.precision,
            batch_size=options.batch_size,
            workers=options.workers,
            quiet=options.quiet,
            download=options.download,
            seeds=options.seeds,
            recompute=options.recompute,
        )
    )


def add_linear(commands: _Commands) -> None:
    parser = commands.add_parser(
        "linear",
        help="linear evaluation of backbones that learned from pictures alone, beside the paper's figures",
        description="A linear classifier on the frozen backbone of one or more checkpoints of training.unimodal, "
        "after its last epoch, and the vote of the nearest neighbours. What was measured before is not measured "
        "again, and the exit code is 1 if something failed.",
    )
    parser.add_argument("--checkpoint", type=Path, nargs="+", required=True, metavar="FILE", help="epoch_N.pt, …")
    parser.add_argument("--data", required=True, metavar="PATH", help="training pictures, as in training.unimodal")
    parser.add_argument("--val-data", metavar="PATH", help="test pictures (CIFAR: its test part by default)")
    parser.add_argument(
        "--label", default="cls", metavar="NAME", help="of shards: cls files, or a field of json files"
    )
    parser.add_argument("--dataset", metavar="NAME", help="its name in the tables, such as imagenet100")
    parser.add_argument(
        "--imbalance",
        type=float,
        help="of the classifier's training pictures, 1 for all (default: the checkpoint's)",
    )
    parser.add_argument("--imbalance-seed", type=int, help="which pictures stay (default: the checkpoint's)")
    parser.add_argument("--cached", action="store_true", help="features once, without augmentation: much faster")
    _add_linear_settings(parser)
    parser.add_argument(
        "--output", type=Path, default=Path("linear_results"), metavar="DIR", help="results and tables"
    )
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, … (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=0, help="processes that read (default: %(default)s)")
    parser.add_argument("--seeds", action="store_true", help="all checkpoints are one experiment: mean ± deviation")
    parser.add_argument("--ablations", action="store_true", help="the paper's ablations in the table, too")
    parser.add_argument("--recompute", action="store_true", help="measure again what was measured before")
    parser.add_argument("--quiet", action="store_true", help="no lines of progress")
    parser.set_defaults(run=_run_linear)


def _add_linear_settings(parser: argparse.ArgumentParser) -> None:
    """Defaults are the paper's; they stand here again, since torch takes longer to import than --help may take."""
    parser.add_argument("--epochs", type=positive, default=100, help="of the classifier (default: %(default)s)")
    parser.add_argument("--lr", type=float, default=30.0, help="× 0.2 at 40, 60, 80 %% (default: %(default)s)")
    parser.add_argument("--batch-size", type=positive, default=256, help="(default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the classifier (default: %(default)s)")
    parser.add_argument("--neighbours", type=positive, default=200, help="that vote (default: %(default)s)")
    parser.add_argument(
        "--knn-temperature", type=float, default=0.1, help="of their weights (default: %(default)s)"
    )


def _run_linear(options: argparse.Namespace) -> int:
    from isogclr.evaluation.linear import LinearSettings  # noqa: PLC0415 (torch takes seconds to import)
    from isogclr.evaluation.linear_command import LinearRequest, run_linear  # noqa: PLC0415
    from isogclr.evaluation.linear_measure import LinearPlan  # noqa: PLC0415

    settings = LinearSettings(
        epochs=options.epochs, lr=options.lr, batch_size=options.batch_size, seed=options.seed
    )
    plan = LinearPlan(settings, options.cached, options.neighbours, options.knn_temperature)
    return run_linear(
        LinearRequest(
            checkpoints=tuple(options.checkpoint),
            data=options.data,
            output=options.output,
            test_data=options.val_data,
            dataset=options.dataset,
            label=options.label,
            imbalance=options.imbalance,
            long_tail_seed=options.imbalance_seed,
            plan=plan,
            device=options.device,
            workers=options.workers,
            seeds=options.seeds,
            ablations=options.ablations,
            recompute=options.recompute,
            quiet=options.quiet,
        )
    )


def add_export(commands: _Commands) -> None:
    parser = commands.add_parser(
        "export", help="a checkpoint as a folder for open_clip, clip_benchmark and Hugging Face, or for torchvision"
    )
    parser.add_argument("checkpoint", type=Path, help="epoch_N.pt, …")
    parser.add_argument("folder", type=Path, help="folder to write; must not exist")
    parser.add_argument("--model", metavar="NAME", help="model of a checkpoint that does not say it itself")
    parser.set_defaults(run=_run_export)


def _run_export(options: argparse.Namespace) -> None:
    from isogclr.models.model_folder import export  # noqa: PLC0415

    if find_spec("safetensors") is None:
        raise InputError("found no safetensors: `isogclr export` needs `pip install 'isogclr[eval]'`")
    exported = export(options.checkpoint, options.folder, options.model)
    print(f"wrote {', '.join(exported.names)} to {options.folder}; {exported.advice}")
