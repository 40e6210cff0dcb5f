"""The report of runs: one HTML page, with each figure as PNG and its data as CSV beside it. No torch here."""
