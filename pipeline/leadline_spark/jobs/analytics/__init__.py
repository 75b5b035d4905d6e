"""Cluster analytics: of the audit history, tables in Parquet, a summary in JSON, a report in HTML.

`job` is the one to start. docs/analytics.md defines every figure.
"""
