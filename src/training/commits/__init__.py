"""What is written together, and how a run goes on from it.

Reading order:

    commit.py  a generation: model, optimizer, generators, data positions, store
    resume.py  what `--resume` finds, and what a run takes from it
"""
