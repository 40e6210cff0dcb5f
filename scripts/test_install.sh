#!/usr/bin/env bash
# scripts/test_install.sh PYTHON [CONSTRAINTS]: do the ranges of setup.py hold? The body of make test-newest, test-oldest.
#
# `requirements.txt` pins what CI runs. An install takes the newest versions that the ranges of setup.py allow instead,
# or others if there is a file of constraints. This makes fresh environments, runs what a user would run first, on the
# emoji inside the package and from a folder without the sources, and prints versions and results. It needs a package
# index, and 10 GB of disk for as long as it runs. COMPUTE is put before whatever computes, such as `nice -n 19`.
set -euo pipefail
python=$(command -v "$1")
constraints=()
[ -z "${2:-}" ] || constraints=(--constraint "$(realpath "$2")")
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/isogclr-newest.XXXXXX")
trap 'rm -rf "$work"' EXIT
unset PYTHONPATH
export PIP_DISABLE_PIP_VERSION_CHECK=1
# shellcheck disable=SC2206 # several words on purpose
compute=(${COMPUTE:-})

say() { printf '\n== %s: %s\n' "$("$python" --version)" "$*"; }

# Only what is ours: a `build` folder of another install would end up in the package.
mkdir "$work/source" "$work/runs" && cd "$root"
cp -r setup.py pyproject.toml README.md LICENSE src "$work/source"
find "$work/source" \( -name __pycache__ -o -name '*.egg-info' \) -prune -exec rm -r {} +
cd "$work/runs"

environment() { # NAME EXTRAS
    "$python" -m venv "$work/$1"
    "$work/$1/bin/python" -m pip install --quiet "${constraints[@]}" "$work/source$2"
    bin=$work/$1/bin
    "$bin/python" -m pip list --format=freeze | grep -iE \
        '^(torch|torchvision|open_clip|timm|transformers|webdataset|braceexpand|pandas|pillow|tqdm|numpy|clip.benchmark|requests|safetensors|matplotlib|jinja2|scikit-learn|scipy|threadpoolctl)[a-z_]*=' |
        tr '\n' ' '
    data=$("$bin/python" -c 'from isogclr import demo_data; print(demo_data.FOLDER)')
    printf '\n%s in %s\n' "$("$bin/isogclr" --version)" "$data"
}

train() { # NAME
    "${compute[@]}" "$bin/python" -m training.main --loss isogclr --model isogclr-tiny --workers 1 --precision fp32 \
        --train-data "$data/train-{000..001}.tar" --val-data "$data/test-000.tar" --epochs 1 --batch-size 64 \
        --warmup 10 --logs . --name "$1" >"$1.txt" 2>&1 || { tail -n 30 "$1.txt" && return 1; }
    grep -h 'Eval Epoch.*R@10' "$1.txt" | tail -n 1 | grep -oE '[a-z_]+R@10: [0-9.]+' | tr '\n' ' '
    printf '\n%s lines that warn\n' "$(grep -ciE 'warn(ing)?\b' "$1.txt" || true)"
}

say "an sdist and the wheel that is made of it hold every file"
"$python" -m venv "$work/build" && "$work/build/bin/python" -m pip install --quiet build
"$work/build/bin/python" -m build --outdir "$work/dist" "$work/source" >"$work/build.txt" 2>&1 ||
    { tail -n 30 "$work/build.txt" && exit 1; }
"$python" "$root/scripts/package_files.py" "$work/source/src" "$work"/dist/*.whl
rm -r "$work/build"

say "pip install ."
environment bare ""
say "a training"
train bare
if "$bin/isogclr" eval --checkpoint bare/checkpoints/epoch_1.pt --data-root . 2>eval.txt; then exit 1; fi
grep "pip install 'isogclr\[eval\]'" eval.txt
rm -r "$work/bare"

say "pip install '.[eval,report]'"
environment extras "[eval,report]"
say "a training"
train extras
say "an eval"
mkdir -p data/emoji/test && cp "$data/test-000.tar" data/emoji/test/0.tar
echo 1 >data/emoji/test/nshards.txt && echo retrieval >data/emoji/dataset_type.txt
"${compute[@]}" "$bin/isogclr" eval --checkpoint extras/checkpoints/epoch_1.pt --data-root data --dataset emoji
say "a report"
"${compute[@]}" "$bin/isogclr" report extras
test -s extras/report/report.html
say "the demo, for one epoch"
"${compute[@]}" "$bin/isogclr" demo --epochs 1
say "packaging, training, eval, report and demo work"
