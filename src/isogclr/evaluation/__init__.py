"""Evaluation through clip_benchmark, beside the paper's tables. docs/evaluation.md says what every number means.

clip_benchmark's data sets, prompts and classifier do the measuring; models come from `isogclr.models`. In the order
in which to read them:

    command.py          the body of `isogclr eval`, from the disk to files and a table: begin here
    suites.py           which data sets there are, and what is measured on them
    data_folders.py     finds a data set on disk and checks it before anything runs
    native.py           folders as clip_benchmark reads them, checked file by file
    webdataset_copy.py  the same of webdataset copies
    download.py         lets clip_benchmark fetch a data set, on demand only
    measure.py          one model on one data set
    metrics.py          what clip_benchmark can not do on current packages, or wastes
    damage.py           which image it was, when reading failed
    results.py          one JSON file per result; also the cache
    paper.py            the published figures, from paper.json
    result_tables.py    our rows beside the paper's
    in_training.py      a suite on the model that is being trained, for use by a trainer

Backbones that learned from pictures alone are measured by a linear classifier and by nearest neighbours:

    linear_command.py   the body of `isogclr linear`, from checkpoints and pictures to files and a table: begin here
    linear_data.py      the pictures: a training part, perhaps with a long tail, and a test part
    linear_measure.py   one backbone on them: neighbours, classifier, figures
    picture_features.py features of a frozen backbone, once or augmented in each epoch
    linear.py           the paper's linear evaluation: the classifier, its schedule, its figures
    knn.py              the vote of the nearest neighbours, also used during training
    class_parts.py      head, middle and tail of the classes, for data with a long tail
"""
