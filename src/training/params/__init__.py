"""The command line: open_clip's flags and ours.

Our parser takes its own flags first and knows no abbreviations; the rest goes to open_clip's. Otherwise open_clip's
parser, which completes abbreviations, would read `--loss isogclr` as `--loss-dist-impl isogclr`.

Reading order:

    flags.py       our flags; loss_flags.py: those of the losses, from their configurations
    mistakes.py    numbers out of range, names that do not exist, patterns without quotes
    refusals.py    what can not be honoured, or means something else than its reader may think
    values.py      from flags to settings

`training.unimodal` has a small command line of its own:

    unimodal_flags.py    its flags
    unimodal_presets.py  their defaults, and the paper's settings by data set
    unimodal_line.py     from flags to settings, and what is wrong with them
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence

from isogclr.errors import ConfigError
from training import open_clip_bridge as bridge
from training.params.flags import create_parser, help_text, refuse_abbreviations
from training.params.mistakes import mistakes, refuse_expanded_patterns
from training.params.refusals import data_problems, loss_problems, notices, refusals
from training.params.values import settings_from
from training.settings import Settings


def parse(argv: Sequence[str]) -> tuple[Settings, Namespace]:
    """The settings of a run, and open_clip's own arguments for the bridge. Every problem is reported together."""
    parser = create_parser()
    ours, rest = parser.parse_known_args(argv)
    if ours.help:
        sys.stdout.write(help_text(parser))
        raise SystemExit(0)
    refuse_abbreviations(parser, rest)
    refuse_expanded_patterns(rest)
    theirs = bridge.parse_args(rest)
    problems = refusals(ours, theirs) + mistakes(ours, theirs)
    if ours.loss is None:
        ours.loss = "siglip" if theirs.siglip else "clip"
    theirs.siglip = ours.loss == "siglip"
    problems += data_problems(theirs) + loss_problems(ours, theirs)
    if problems:
        raise ConfigError(problems)
    remarks = notices(ours, theirs, rest)
    return settings_from(ours, theirs, remarks), theirs
