"""The report of runs: one HTML page, with each figure as PNG and its data as CSV beside it. No torch here.

In the order in which to read them:

    make.py           the story, from run directories to files: begin here
    loading.py        what a run directory holds, and notes on what it lacks
    journal.py        metrics.jsonl: lines that were replaced, lost or cut off
    directions.py     which sides of a sample have a temperature: image and text, or one
    scan.py           one pass over the store: distributions, extremes, a random sample
    samples.py        pictures and captions of chosen rows, from their shards
    thumbnails.py     pictures decoded with care, made small
    detail.py         the chosen samples: read, embedded, compared
    commonness.py     how common a sample is, by neighbours and by words
    negatives.py      what a sample is pushed away from
    projection.py     t-SNE for the map
    curves.py         figures of what was logged
    distributions.py  figures of the temperatures of all samples
    relations.py      figures of temperature against semantics
    canvas.py         how any figure is painted: the only module that knows matplotlib
    summaries.py      tables
    wording.py        numbers and strange texts as people read them
    page.py           everything above as one HTML file, with the template, style and script in page_files/
"""
