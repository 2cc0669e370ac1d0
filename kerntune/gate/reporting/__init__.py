"""Runs as people and dashboards read them: an HTML report, a Markdown summary, annotations of CI, tables of figures.

What is here takes results that a gate has finished and writes text. It decides nothing about a case, measures nothing,
compiles nothing, and never reads a baseline: what a report shows is in the run's JSON or in a history.
"""
