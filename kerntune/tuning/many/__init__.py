"""Many keys at once: which calls are to be tuned, described as data, and who tunes them.

A call of a tuned kernel becomes a :class:`~kerntune.base.tuning_job.TuningJob` (``describing``), and a file of them is
a ``shapes_file``. ``job_run`` tunes one in whatever process it is given to. ``hand_out`` gives many to an executor and
collects what comes back; ``gpu_pools`` is the executor for the GPUs of this host. How a winner is found is never
decided here, and tensors' contents are never looked at.

``startup/sitecustomize`` is small because it is light: Python loads it at its start.
"""
