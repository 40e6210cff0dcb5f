"""The state of all samples, as a run uses it; the store itself is `isogclr.state`.

Reading order:

    state_table.py      what a step reads and writes; the exchange between ranks
    opening.py          index and store of a run, built or restored on every node
    placement.py        where a node keeps its live file
    all_rows.py         questions to all rows: histograms, what an epoch has seen
    node_comparison.py  the stores of all nodes are equal at a commit
"""
