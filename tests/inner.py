"""Options of pytest runs inside of tests: without what costs each of them a second."""

NO_SUMMARY = ("-p", "no:hypothesispytest")
"""It imports all of hypothesis for its summary."""

NO_GARBAGE = ("-p", "no:unraisableexception")
"""It collects garbage at a run's end, among all that torch is made of. The outer run does so, too."""

QUICK = (*NO_SUMMARY, *NO_GARBAGE)

QUIET = ("-p", "no:cacheprovider", *QUICK)
