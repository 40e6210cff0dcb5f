"""The processes of a run.

Reading order:

    rendezvous.py  where ranks meet, looked at before they try
    node.py        which ranks share a node
    agreement.py   what all ranks must agree on, and one message if they do not
    failures.py    a failure of one rank ends all, with its cause printed once; a wish to stop reaches all
    stopping.py    the moment at which all of them stop
"""
