"""Make image-caption data sets from emoji: the one inside the package, and larger ones for studies.

    python scripts/data/emoji.py embedded             # src/isogclr/demo_data, byte for byte as committed
    python scripts/data/emoji.py embedded --check     # make it again elsewhere and compare the checksums
    python scripts/data/emoji.py study /data/emoji --validation twemoji --held-out openmoji --pixels 64

Needs `npm` to fetch the packages, and `pip install resvg-py==0.5.0` to render them.
docs/demo_data.md is the data card.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import platform
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from emoji_captions import Dictionary, caption
from emoji_packages import PERMISSIVE, REGISTRY_NAMES, STYLES, Style, has_skin_tone, load_style, rendered
from emoji_shards import Sample, write_shards

DEMO_DATA = Path(__file__).resolve().parents[2] / "src" / "isogclr" / "demo_data"
FAMILIES = ({"noto", "noto-v1"}, {"emojione", "emojione-v1"})  # they share drawings: never on both sides


@dataclass(frozen=True)
class Plan:
    train: tuple[str, ...]
    held_out: tuple[str, ...]
    pixels: int
    skin_tones: bool
    train_shards: int
    test_shards: int
    effort: int  # of compression
    validation: tuple[str, ...] = ()


EMBEDDED = Plan(("noto", "noto-v1", "fxemoji"), ("fluent-emoji-flat",), 48, False, 8, 2, effort=6)


def main() -> None:
    options = _options()
    packages = options.packages or Path(tempfile.gettempdir()) / "isogclr-emoji-packages"
    if options.command == "study":
        make(_study_plan(options), packages, options.folder)
    elif options.check:
        with tempfile.TemporaryDirectory() as folder:
            make(EMBEDDED, packages, Path(folder), licenses=PERMISSIVE)
            _compare(Path(folder) / "manifest.json", DEMO_DATA / "manifest.json")
    else:
        make(EMBEDDED, packages, DEMO_DATA, licenses=PERMISSIVE)


def make(plan: Plan, packages: Path, folder: Path, licenses: set[str] | None = None) -> None:
    """Render, caption and write both sides; with `licenses`, refuse styles under any other."""
    folder.mkdir(parents=True, exist_ok=True)
    dictionary = Dictionary(packages)
    styles = {name: load_style(name, packages) for name in (*plan.train, *plan.validation, *plan.held_out)}
    for style in styles.values():
        if licenses is not None and style.license not in licenses:
            raise SystemExit(f"{style.name} is under {style.license}; allowed here: {', '.join(sorted(licenses))}")
    seen: set[bytes] = set()
    train = _samples([styles[name] for name in plan.train], plan, dictionary, seen)
    validation, test = (
        _distinct_captions(_samples([styles[name] for name in names], plan, dictionary, seen))
        for names in (plan.validation, plan.held_out)
    )
    train = train[: len(train) - len(train) % plan.train_shards]  # shards of equal size
    shards = write_shards(folder, "train", train, plan.train_shards, plan.effort)
    if validation:
        shards += write_shards(folder, "validation", validation, plan.test_shards, plan.effort)
    shards += write_shards(folder, "test", test, plan.test_shards, plan.effort)
    _write_json(folder / "sizes.json", {str(shard["file"]): shard["samples"] for shard in shards})
    _write_json(folder / "manifest.json", _manifest(plan, styles, (*train, *validation, *test), shards))
    print(f"{len(train):,} training, {len(validation):,} validation and {len(test):,} test pairs in {folder}")


def _samples(styles: Sequence[Style], plan: Plan, dictionary: Dictionary, seen: set[bytes]) -> list[Sample]:
    """Each picture once over all styles, in an order that is random but always the same."""
    samples = []
    for style in styles:
        drawings = (drawing for drawing in style.drawings if plan.skin_tones or not has_skin_tone(drawing))
        for drawing, image in rendered(drawings, plan.pixels):
            pixels = hashlib.sha256(image.tobytes()).digest()
            if pixels in seen:
                continue
            seen.add(pixels)
            meaning = dictionary.meaning(drawing)
            about = {"name": meaning.label, "group": meaning.group, "style": style.name, "license": style.license}
            key = f"{style.name}__{drawing.icon}"
            samples.append(Sample(key, image, caption(drawing, meaning), about))
    return sorted(samples, key=lambda sample: hashlib.sha256(sample.key.encode()).digest())


def _distinct_captions(samples: Iterable[Sample]) -> list[Sample]:
    """A caption that two test pictures share has two right answers: the later one is left out."""
    first: dict[str, Sample] = {}
    for sample in samples:
        first.setdefault(sample.caption, sample)
    return list(first.values())


def _manifest(
    plan: Plan, styles: dict[str, Style], samples: Sequence[Sample], shards: list[dict[str, object]]
) -> dict[str, object]:
    counts = Counter(sample.about["style"] for sample in samples)
    sides = {"train": plan.train, "validation": plan.validation, "test": plan.held_out}
    return {
        "pixels": plan.pixels,
        "skin_tones": plan.skin_tones,
        **{
            side: {"styles": names, "samples": sum(counts[name] for name in names)}
            for side, names in sides.items()
            if names
        },
        "styles": {
            name: {
                "package": REGISTRY_NAMES[name],
                "license": style.license,
                "author": style.author,
                "origin": style.origin,
                "samples": counts[name],
            }
            for name, style in styles.items()
        },
        "captions": REGISTRY_NAMES["emojibase"],
        "made_with": {
            "python": platform.python_version(),
            "pillow": importlib.metadata.version("pillow"),
            "resvg-py": importlib.metadata.version("resvg-py"),
        },
        "shards": shards,
    }


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _compare(made: Path, committed: Path) -> None:
    new, old = (json.loads(path.read_text(encoding="utf-8")) for path in (made, committed))
    different = [ours["file"] for ours, theirs in zip(new["shards"], old["shards"], strict=True) if ours != theirs]
    if different:
        raise SystemExit(
            f"not the same bytes: {', '.join(different)}; made with {new['made_with']}, committed with "
            f"{old['made_with']}: use these versions"
        )
    print("the same bytes")


def _study_plan(options: argparse.Namespace) -> Plan:
    styles = list(STYLES) if options.styles == "all" else options.styles.split(",")
    held_out = options.held_out.split(",")
    validation = options.validation.split(",") if options.validation else []
    unknown = [name for name in (*styles, *validation, *held_out) if name not in STYLES]
    if unknown:
        raise SystemExit(f"unknown styles {', '.join(unknown)}; there are {', '.join(STYLES)}")
    train = tuple(name for name in styles if name not in (*validation, *held_out))
    for family in FAMILIES:
        if sum(bool(family & set(side)) for side in (train, validation, held_out)) > 1:
            raise SystemExit(f"{' and '.join(sorted(family))} share drawings: keep them on one side")
    counts = (options.shards, options.test_shards)
    return Plan(
        train, tuple(held_out), options.pixels, options.skin_tones, *counts, effort=0, validation=tuple(validation)
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    embedded = commands.add_parser("embedded", help="the data set inside the package")
    embedded.add_argument("--check", action="store_true", help="compare instead of writing")
    study = commands.add_parser("study", help="a larger set in a folder of yours; mind the licences of the styles")
    study.add_argument("folder", type=Path)
    study.add_argument("--styles", default="all", help="comma-separated, default: all")
    study.add_argument("--held-out", default="openmoji", help="styles for testing only, comma-separated")
    study.add_argument("--validation", default="", help="styles for choosing settings only, comma-separated")
    study.add_argument("--pixels", type=int, default=64)
    study.add_argument("--skin-tones", action="store_true", help="keep the variants by skin tone")
    study.add_argument("--shards", type=int, default=16)
    study.add_argument("--test-shards", type=int, default=2)
    for command in (embedded, study):
        command.add_argument("--packages", type=Path, help="where the npm packages are kept between calls")
    return parser.parse_args()


if __name__ == "__main__":
    main()
