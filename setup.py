"""Packaging of isogclr: the library `isogclr` and the trainer `training`.

A range goes from the oldest version that was run to the end of the newest series that was run, and no further:
`make test-newest` runs the upper ends, `make test-oldest` the lower ones, `make check` what requirements.txt pins.
"""

from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent

TRAINING = [
    "torch>=2.9,<2.16",  # 2.9: precision of fp32 products by backend
    "torchvision>=0.24,<0.30",
    "open_clip_torch[training]>=3.3,<3.4",  # the training program that we extend: tests/contract names what we use
    "webdataset<=0.2.86",  # open_clip's own bound: its reader breaks with later releases
    "braceexpand>=0.1.7,<0.2",
    "pandas>=2.2,<4",
    "pillow>=11,<14",
    "tqdm>=4.66,<5",
    "numpy>=2.1,<3",
]
EVALUATION = [
    "clip-benchmark>=1.6.2,<1.7",
    "requests>=2.32,<3",  # imported by clip-benchmark, which forgets to declare it
    "numpy<2.4",  # clip_benchmark's accuracy() raises TypeError from 2.4 on
    "safetensors>=0.5,<1",
]
REPORT = [
    *("matplotlib>=3.9,<4", "jinja2>=3.1.4,<4", "scikit-learn>=1.6,<2", "scipy>=1.14,<2", "threadpoolctl>=3.5,<4"),
]
DEVELOPMENT = [
    *("pytest", "pytest-timeout", "pytest-xdist", "hypothesis", "scipy", "tensorboard", "selenium"),
    *("ruff", "mypy", "types-tqdm"),
]

setup(
    name="isogclr",
    version="0.1.0",
    description="CLIP with a learned temperature for every sample: iSogCLR for open_clip",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    author="The isogclr developers",
    license_expression="MIT",
    license_files=["LICENSE"],
    keywords=["CLIP", "contrastive learning", "iSogCLR", "SogCLR", "open_clip", "temperature", "webdataset"],
    python_requires=">=3.10,<3.14",
    package_dir={"": "src"},
    packages=find_packages("src"),
    package_data={
        "isogclr": ["py.typed", "evaluation/*.json", "models/model_configs/*.json", "report/page_files/*"],
        "isogclr.demo_data": ["*.tar", "*.json", "NOTICE.md", "LICENSES/*.txt"],
    },
    install_requires=TRAINING,
    extras_require={
        "parquet": ["pyarrow"],
        "tensorboard": ["tensorboard"],
        "eval": EVALUATION,
        "report": REPORT,
        "dev": DEVELOPMENT,
    },
    entry_points={"console_scripts": ["isogclr = isogclr.cli:main"]},
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Environment :: Console",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Scientific/Engineering :: Image Recognition",
        "Typing :: Typed",
    ],
)
