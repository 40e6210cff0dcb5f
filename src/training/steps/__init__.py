"""One epoch, step by step.

Reading order:

    loop.py          the steps of an epoch; hands over after each of them
    step.py          the gradients of one step; accumulation
    optimization.py  from gradients to a step that was taken, or not
    health.py        loss and gradients that are not finite, counted
    progress.py      where a run is
    log_lines.py     what is said about a step
    metric_log.py    where the numbers go: log, TensorBoard, W&B, metrics.jsonl
"""
