"""Many runs: what each adds to the history, where that is stored, and where cases got slower or faster.

One file a run, in a folder, on a git branch or behind a URL; an index by case, which can be thrown away; steps and
drifts in the paired changes. No run is judged here: verdicts come from one comparison, and the history never fails a
test.
"""
