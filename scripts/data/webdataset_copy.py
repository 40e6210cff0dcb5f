"""A webdataset copy of a native data set, in clip_benchmark's layout: fewer files, and reads well over a network.

    python scripts/data/webdataset_copy.py flickr30k DATA DATA/wds_flickr30k

clip_benchmark does the conversion. Its own command, clip_benchmark_export_wds, fails on Flickr30K and MSCOCO in
version 1.6.2: it builds every data set for classification, and these have no classes.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from clip_benchmark.datasets.builder import build_dataset
from clip_benchmark.webdataset_builder import PIL_to_bytes, convert_dataset, convert_retrieval_dataset

from isogclr.errors import InputError, IsogclrError
from isogclr.evaluation.data_folders import locate
from isogclr.evaluation.suites import DATASETS, RETRIEVAL


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("dataset", choices=DATASETS)
    parser.add_argument("data_root", type=Path, help="the data set lies in DATA_ROOT/NAME")
    parser.add_argument("folder", type=Path, help="folder to write; must not exist")
    parser.add_argument(
        "--image-format", choices=("webp", "png", "jpg"), default="webp", help="webp is lossless here"
    )
    options = parser.parse_args()
    try:
        make_copy(options.dataset, options.data_root, options.folder, options.image_format)
    except IsogclrError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def make_copy(name: str, data_root: Path, folder: Path, image_format: str = "webp") -> None:
    """Check the native files, then convert them."""
    if folder.exists():
        raise InputError(f"{folder} exists: remove it, or name another folder")
    found = locate(DATASETS[name], data_root)
    if found.shards:
        raise InputError(f"{found.folder} is a webdataset copy already")
    dataset = build_dataset(
        dataset_name=found.benchmark_name,
        root=str(found.folder),
        split="test",
        transform=PIL_to_bytes(image_format),
        download=False,
        task=found.task,
    )
    convert = convert_retrieval_dataset if found.task == RETRIEVAL else convert_dataset
    convert(dataset, "test", str(folder), transform=None, image_format=image_format)


if __name__ == "__main__":
    sys.exit(main())
