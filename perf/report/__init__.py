"""Medians, tables, progress, and which layer served a read; reports of a run.

A report is made of `record`, shown by `terminal`, `page` and `markdown` with the texts of `words`, written and read by
`files`, and held against another one by `comparing`.
"""
