"""The report of runs: one HTML page, with each figure as PNG and its data as CSV beside it. No torch here.

In the order in which to read them:

`make`            the story, from run directories to files: begin here
`loading`         what a run directory holds, and notes on what it lacks
`journal`         metrics.jsonl: lines that were replaced, lost or cut off
`directions`      which sides of a sample have a temperature: image and text, or one
`scan`            one pass over the store: distributions, extremes, a random sample
`samples`         pictures and captions of chosen rows, from their shards
`pictures`        decoded with care, made small
`detail`          the chosen samples: read, embedded, compared
`commonness`      how common a sample is, by neighbours and by words
`negatives`       what a sample is pushed away from
`projection`      t-SNE for the map
`curves`          figures of what was logged
`distributions`   figures of the temperatures of all samples
`relations`       figures of temperature against semantics
`canvas`          how any figure is painted: the only module that knows matplotlib
`summaries`       tables
`wording`         numbers and strange texts as people read them
`page`            everything above as one HTML file, with the template, style and script in page_files/
"""
