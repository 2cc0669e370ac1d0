"""From a launch whose config is open to its winner: candidates, compilation, race, verification, what is remembered.

``cache/`` stores trials and winners, ``api/`` has what users call (decorators, ``install()``), ``choices/`` races whole
implementations, ``many/`` tunes many keys, ``torch_compile/`` serves graphs. Baselines and verdicts never appear here:
a library without pytest needs none.

Some modules are small. ``consensus`` is pure: votes decide, and no device is needed to test them. ``launch_files`` and
``bandwidth_report`` are late: few programs dump or report launches. ``dynamo_watch`` is light: it waits for torch's
compiler, and loads nothing of it. ``device_figures`` is apart from the launches that it is compared with: commands and
the gate read it without them.
"""
