"""One case, from the user's call to its verdict: captured, tuned, timed, compared, judged, explained.

Baselines on disk, the decision table, attribution of causes, reports. :mod:`kerntune.gate.api` is what the plugin
calls. No pytest object is known here, and neither driver nor compiler is called directly. The package imports
nothing, so that a command or a plain pytest run loads no more than it needs.

A check has a module for each noun, which imports only from modules below it in this list:

==================  ===================================================================================================
session             a run over many cases: opens and closes what they share, stale baselines
gpu_check           a case on a GPU, step by step; cases without a time
static_check        a case without a GPU, from its launches to its result; the candidates of tuned kernels there
static_verdict      the verdict there: figures against rules
baseline_builder    the baseline that may be written
messages            the texts of a result
comparison          one comparison, with a baseline or an anchor; what a case's comparisons come to together
causes              causes of a change: sentences, and each one's share of the time
replay              today's recording beside the baseline's; the fallbacks where that can't be; calibrations
launch_changes      what differs between launches: lines, findings of rules, gated metrics
call_tuning         the configs that a call's launches run with; the leases of the keys that are tuned
call_capture        a call run once, and the case that it is on a target
stores              the folders of a run: own, reference, anchor; what they have of a case; stale baselines
call                the user's call, the project's settings, the result; the result against its reference
case_identity       fingerprints, inputs of closures, renamed tests; what tells a call from its nearest stored case
==================  ===================================================================================================

A sealed run decides by :mod:`kerntune.gate.claimed_cases`. A session uses :mod:`kerntune.gate.gpu_capture` (what a
capture asks for on the GPU where the call launches; timing workers and first launches of each GPU) and
:mod:`kerntune.gate.case_output` (what is written where a run asks for it). ``device_faults`` tells whether the GPU
still runs anything in this process, and what a case's own launches write outside of their tensors, ``fusion`` what
Inductor fuses otherwise than before, ``code_changes`` the hunks of changed code, :mod:`kerntune.gate.stopped_tests`
which calls a test that stopped has not reached. They rest on ``call_operators`` (what changed among the operators of
torch beside the kernels), ``baselines``, ``baseline_files`` and ``bundle`` (what is in baselines, and their files),
``decision`` (the table: numbers in, a verdict out), ``static_figures`` (figures), ``grid_changes`` (what other numbers
of programs come to), ``report`` (tables and run JSON), and on what the command and the plugin share: ``console``,
``git``, ``project``. What people read of finished runs is in :mod:`kerntune.gate.reporting`, which nothing else here
imports.

Some modules are small. The plugin needs one way in, and a command's help loads the console alone: both are light. What
a run asks to be written, hunks of code, and tests that stopped are late, since few runs need them. The decision table
and the changes of operators are pure: they see values, and are tested without a device."""
