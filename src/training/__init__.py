"""The programs: `python -m training.main`, open_clip's training program with sample identity and per-sample state,
and `python -m training.unimodal`, which learns from pictures alone.

Where to begin reading:

    main.py              signals.py first, then `run`; unimodal.py: the same for the other program
    program.py           what makes a run one program's and not another's
                         open_clip_program.py: `training.main`; views/: `training.unimodal`
    run.py               the story of a run, top to bottom; assembly.py: what it trains with
    epochs.py            epoch after epoch: train, evaluate, commit
    divergence.py        what is done when a run has diverged
    steps/               one epoch, step by step
    data/                samples with rows: order, workers, batches
    store/               the state of all samples, as a run uses it
    commits/             what is written together, and how a run goes on from it
    ranks/               the processes of a run: nodes, agreement, failures
    settings.py          what a run is asked to do; params/ makes it from the command line
    features.py          what a step asks of a model; model.py, loss.py and evaluation.py are open_clip's and ours
    randomness.py        every seed and every random generator
    folder.py            the folder of a run
    full_disk.py         a full disk is said in one line, whoever meets it
    open_clip_bridge.py  the only door to open_clip_train

main → run → assembly → epochs → steps → (data, store) → isogclr. `epochs` asks `divergence` what to do when loss or
weights are not finite. `commits` knows `steps.progress` and no loop; `ranks` knows nobody above it.
tests/unit/test_imports.py holds these arrows.
"""
