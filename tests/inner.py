"""Options of pytest runs inside of tests: without what costs each of them a second and is the outer run's business."""

QUICK = (
    *("-p", "no:hypothesispytest"),  # imports all of hypothesis for its summary
    *(
        "-p",
        "no:unraisableexception",
    ),  # collects garbage at the end, among all that torch is made of; the outer run has it
)

QUIET = ("-p", "no:cacheprovider", *QUICK)
