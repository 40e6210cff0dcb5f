"""Evaluation through clip_benchmark, beside the paper's tables. docs/evaluation.md says what every number means.

clip_benchmark's data sets, prompts and classifier do the measuring; models come from `isogclr.models`. In the order
in which to read them:

`command`           the body of `isogclr eval`, from the disk to files and a table: begin here
`suites`            which data sets there are, and what is measured on them
`data_folders`      finds a data set on disk and checks it before anything runs
`native`            folders as clip_benchmark reads them, checked file by file
`webdataset_copy`   the same of webdataset copies
`download`          lets clip_benchmark fetch a data set, on demand only
`measure`           one model on one data set
`metrics`           what clip_benchmark can not do on current packages, or wastes
`damage`            which image it was, when reading failed
`results`           one JSON file per result; also the cache
`paper`             the published figures, from paper.json
`result_tables`     our rows beside the paper's
`in_training`       a suite on the model that is being trained, for use by a trainer
"""
