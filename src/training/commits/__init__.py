"""What is written together, and how a run goes on from it.

Reading order:

    commit.py      a generation: model, optimizer, generators, data positions, store
    finiteness.py  whether what a commit would hold is finite
    resume.py      what `--resume` finds, and what a run takes from it
    rollback.py    an earlier commit once more, with a lower learning rate
"""
