"""`training.unimodal` as a program: two views of each picture.

Reading order:

    view_program.py  what makes a run its own: model, data, loss, evaluation, facts of a checkpoint
    view_model.py    backbone and projector, as a run trains them
    neighbours.py    kNN accuracy in training
"""
