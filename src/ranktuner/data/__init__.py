"""Data: rows from files, encoded examples, optimiser batches. No torch here; tokenizers are passed in.

rows -> `open_rows`; encode -> `Encoder`; batches -> `Shuffle`, `micro_batches`, `flatten`; presets -> `PRESETS`.
"""
