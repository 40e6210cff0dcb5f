"""The report of runs: one HTML page, with each figure as PNG and its data as CSV beside it. No torch here.

In the order in which to read them:

    make.py           the story, from run directories to files: begin here
    loading.py        what a run directory holds, and notes on what it lacks
    journal.py        metrics.jsonl: lines that were replaced, lost or cut off
    directions.py     which sides of a sample have a temperature: image and text, or one
    run_data.py       the data of a run, as far as it is there: samples by row, and classes
    samples.py        pictures and captions of chosen rows, from their shards
    row_classes.py    the class of each row
    scan.py           one pass over the store: distributions, extremes, a random sample
    by_class.py       the same pass, class by class
    thumbnails.py     pictures decoded with care, made small
    detail.py         the chosen samples: read, embedded, compared
    commonness.py     how common a sample is, by neighbours and by words
    negatives.py      what a sample is pushed away from
    projection.py     t-SNE for the maps
    curves.py         figures of what was logged
    distributions.py  figures of the temperatures of all samples
    class_figures.py  figures of temperatures by class and class size
    relations.py      figures of temperature against semantics
    arrangement.py    maps of pictures by class: run beside run, hot beside cold
    side_by_side.py   which runs and which pictures such a map has
    model_of_run.py   the model of a run, or why there is none
    class_colours.py  which classes have a colour on a map
    canvas.py         how any figure is painted: the only module that knows matplotlib
    summaries.py      tables
    class_tables.py   tables of temperatures by class
    wording.py        numbers and strange texts as people read them
    page.py           everything above as one HTML file, with the template, style and script in page_files/
"""
