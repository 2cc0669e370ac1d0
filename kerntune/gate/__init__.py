"""One case, from the user's call to its verdict: captured, tuned, timed, compared, judged, explained.

Baselines on disk, the decision table, attribution of causes, reports. :mod:`kerntune.gate.api` is what the plugin
calls. No pytest object is known here, and neither driver nor compiler is called directly. The package imports
nothing, so that a command or a plain pytest run loads no more than it needs.
"""
