"""What tests share: data, models, runs and processes that are small and real. Nothing here is a test.

Data
    shard_writing         tar shards of any members, and what open_clip's own reader makes of them
    training_data         shards of tiny pictures that tell samples apart, and how a test reads an epoch of them
    memory_source         a data set in memory, for tests of what draws from one
    evaluation_data       small data sets in clip_benchmark's formats, and a tiny model
    data_scripts          the programs of scripts/data and scripts/study as modules
    build_killer          builds of an index that are killed

Losses and stores
    unit_pairs            features of unit length
    two_towers            a small model on a fixed sequence of global batches, on one process or on many
    store_cases           both kinds of store behind one factory, and rows that are easy to check

Whole runs
    gloo                  a function in real gloo processes
    micro_run             `training.main` in forked processes: data, model, command line, metrics
    run_state             what a run has come to, compared bit for bit
    one_process           the batches of many ranks in one process, without DDP, loader or file store
    both_programs         `training.main` and open_clip's program side by side
    open_clip_reference   open_clip's program, with what a comparison needs changed from outside
    report_runs           folders of runs for the report
    browser               Chromium without a screen
    slurm_stub            what the Slurm launcher runs instead of a training
"""
