"""Packaging of isogclr: the library `isogclr` and the trainer `training`."""

from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent

TRAINING = [
    "torch>=2.9",  # precision of fp32 products by backend
    "torchvision",
    "open_clip_torch[training]>=3.3,<3.4",
    "webdataset<=0.2.86",
    "braceexpand",
    "pandas",
    "pillow",
    "tqdm",
    "numpy",
]
EVALUATION = ["clip-benchmark>=1.6.2", "requests", "numpy<2.4", "safetensors", "pillow"]
DEVELOPMENT = [
    *("pytest", "pytest-timeout", "hypothesis", "scipy", "tensorboard", "selenium"),
    *("ruff", "mypy", "types-tqdm"),
]

setup(
    name="isogclr",
    version="0.1.0",
    description="CLIP with a learned temperature for every sample: iSogCLR for open_clip",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="MIT",
    license_files=["LICENSE"],
    python_requires=">=3.10",
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
        "report": ["matplotlib", "jinja2", "pillow", "scikit-learn", "scipy", "threadpoolctl"],
        "dev": DEVELOPMENT,
    },
    entry_points={"console_scripts": ["isogclr = isogclr.cli:main"]},
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Intended Audience :: Science/Research",
        "Programming Language :: Python :: 3",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
)
