"""Trainers that are broken on purpose: each is `training.main` with one thing changed, run as a module of its own.

compiling             torch.compile captures graphs and compiles nothing
crashing_evaluation   evaluation raises
dying                 SIGKILL just before a chosen change to a file
failing               one rank raises in a chosen step; with HANGS it can not close its logger
overflowing           every second step has an infinite gradient
per_node              every rank is on a node of its own
recording             the rows of every step are written down
stopping              a signal arrives in a chosen step
"""
