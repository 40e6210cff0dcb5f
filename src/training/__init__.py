"""The trainer: `python -m training.main`, open_clip's program with sample identity and per-sample state."""
