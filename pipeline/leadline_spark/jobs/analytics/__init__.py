"""Analytics of the audit history: tables in Parquet, a summary in JSON, and a report in HTML.

`job` is the entry point. docs/analytics.md defines every number.
"""
