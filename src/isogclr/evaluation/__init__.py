"""Evaluation through clip_benchmark, beside the paper's tables. docs/evaluation.md says what every number means.

clip_benchmark's data sets, prompts and classifier do the measuring; `metrics.py` fills the gaps.

`suites` what is measured; `layout`, `native`, `webdataset_copy` what is on disk; `checkpoints` from file to model;
`encoder`, `measure`, `metrics` from model to numbers; `results`, `paper`, `tables` from numbers to files;
`command` the body of `isogclr eval`; `export` the body of `isogclr export`; `in_training` for use by a trainer.
"""
