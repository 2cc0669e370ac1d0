"""``kerntune bisect``: the first commit, Triton or torch with which a test's kernels are slower.

``first_bad`` is the search over an ordered line, and pure, ``bisected_version`` what lies on the line (commits,
Tritons) and its checkout, ``judging`` the runs of one version: compiled alone, or timed beside the good one. Runs are
copies of a process that has the imports (``preloaded`` asks for them, ``run_server`` is the process). ``entry`` puts
them together, and is the command. No verdict is reached here: the gate's own runs decide.
"""
