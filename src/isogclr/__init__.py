"""CLIP with a learned temperature for every sample: iSogCLR for open_clip."""
