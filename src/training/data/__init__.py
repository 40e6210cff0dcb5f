"""Training data: samples that are known by row, in an order that can be found again.

Reading order:

    epoch.py          the data of one rank: whole epochs, and the rest of an interrupted one
    position.py       a batch, and a place in an epoch
    source.py         what a data set must offer; shards.py and tables.py hold the order of their samples
    sample.py         what a sample is; image_text.py: a picture and its caption; two_views.py: a picture alone
    picture_sources.py: sources of pictures alone, and the door to data of them
    worker.py         one data worker: draw, decode, augment, collect
    loader.py         torch's DataLoader around the workers
    rest_of_epoch.py  what is left of an epoch after a change of set-up
    tally.py          what became of the samples that a worker has read
"""
