"""The corpus as tables: honest candidates and exploits, what each is held against and on which inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.judge.attempts_eighth_cases import EIGHTH_ATTEMPTS
from benchmarks.judge.attempts_emulator_cases import EMULATOR_ATTEMPTS, EMULATOR_HONEST
from benchmarks.judge.attempts_host_cases import HOST_ATTEMPTS
from benchmarks.judge.attempts_kernels_cases import COUNTER_HONEST, KERNEL_ATTEMPTS
from benchmarks.judge.attempts_later_cases import LATER_ATTEMPTS, LATER_COUNTER, LATER_HONEST
from benchmarks.judge.attempts_ninth_cases import NINTH_ATTEMPTS
from benchmarks.judge.attempts_seventh_cases import SEVENTH_ATTEMPTS, SEVENTH_HONEST
from benchmarks.judge.attempts_sixth_cases import SIXTH_ATTEMPTS, SIXTH_COUNTER, SIXTH_HONEST, SIXTH_HONEST_FILES
from benchmarks.judge.attempts_tenth_cases import TENTH_ATTEMPTS
from benchmarks.judge.held_out_cases import HELD_OUT_EXPLOITS, HELD_OUT_HONEST
from benchmarks.judge.kernel_pairs_norms import KERNEL_PAIRS
from benchmarks.judge.ninth_honest import NINTH_HONEST
from benchmarks.judge.open_honest import OPEN_HONEST
from benchmarks.judge.seventh_package_honest import PACKAGE_LIKE_HONEST
from benchmarks.judge.tenth_calls_honest import TENTH_CALLS_HONEST
from benchmarks.judge.tenth_honest import TENTH_HONEST
from benchmarks.judge.tenth_rows_honest import TENTH_ROWS_HONEST
from kerntune.referee.layouts import defined_names

HERE = Path(__file__).parent

REFERENCES = (
    "references.py",
    "references_rows.py",
    "references_products.py",
    "references_places.py",
    "references_models.py",
)
FILES = {name: file for file in REFERENCES for name in defined_names(str(HERE / file))}


@dataclass(frozen=True)
class Case:
    """One candidate. ``family`` is a row of docs/judge.md's threat model, or ``honest``. ``reference`` is a function of
    :data:`REFERENCES`, or a file with one. A verdict must have the ``remark``."""

    name: str
    family: str
    candidate: str
    reference: str
    inputs: tuple[str, ...]
    remark: str = ""

    @property
    def files(self) -> tuple[str, str]:
        """Candidate and reference as the command takes them."""
        return str(HERE / self.candidate), str(HERE / reference_at(self.reference))


def reference_at(name: str) -> str:
    """The file and function of a reference that is named by its function alone."""
    return name if ".py" in name else f"{FILES[name]}::{name}"


VECTORS = "x: f32[1000]; y: f32[1000]"
ROWS = "x: f16[16,200]"

HONEST_INPUTS: dict[str, tuple[str, ...]] = {
    "add": (VECTORS, "x: f16[333]; y: f16[333]", "x: bf16[64]; y: bf16[64]"),
    "persistent_add:add": (VECTORS,),
    "autotuned_add:add": ("x: f16[2000]; y: f16[2000]",),
    "heuristic_add:add": (VECTORS,),
    "described_add:add": ("x: f16[32,64]; y: f16[32,64]",),
    "axpy": ("x: f32[700]; y: f32[700]; a = 0.3",),
    "relu_": ("x: f32[900]",),
    "gelu": ("x: f32[900]", "x: bf16[900]"),
    "swiglu": ("x: bf16[800]; y: bf16[800]",),
    "silu_backward": ("x: f16[800]; y: f16[800]",),
    "clamp": ("x: f32[500]",),
    "to_bfloat16": ("x: f32[500]",),
    "softmax": (ROWS, "x: f32[8,1000]"),
    "log_softmax": (ROWS,),
    "layer_norm": ("x: f16[16,256]; w: f16[256]; b: f16[256]",),
    "rms_norm": ("x: bf16[16,300]; w: bf16[300]",),
    "layer_norm_backward": ("x: f32[16,256]; w: f32[256]; g: f32[16,256]",),
    "softmax_backward": ("y: f32[16,128] uniform(0, 0.01); g: f32[16,128]",),
    "matmul": ("a: f16[64,96]; b: f16[96,64]", "a: f32[48,64]; b: f32[64,32]"),
    "split_k_atomic:matmul": ("a: f32[64,128]; b: f32[128,32]",),
    "split_k_workspace:matmul": ("a: f16[64,128]; b: f16[128,32]",),
    "batched_matmul": ("a: f16[3,32,64]; b: f16[3,64,16]",),
    "attention": ("q: f16[2,64,32]; k: f16[2,64,32]; v: f16[2,64,32]",),
    "row_sum": ("x: f32[20,500]",),
    "row_mean": ("x: f16[20,500]",),
    "mean_and_variance": ("x: f32[20,300]",),
    "argmax": ("x: f32[20,300]",),
    "group_mean": ("x: f32[8,512]",),
    "transpose": ("x: f16[60,70]",),
    "embedding": ("idx: i64[40] < 100; table: f16[100,48]",),
    "cross_entropy": ("x: f32[16,100]; t: i64[16] < 100",),
    "rotary": ("x: f16[16,64]; c: f16[16,32] uniform(-1, 1); s: f16[16,32] uniform(-1, 1)",),
    "cumsum": ("x: f32[8,300]",),
    "histogram": ("idx: i32[1000] < 64",),
    "scatter_add": ("x: f32[600]; idx: i64[600] < 128",),
    "masked_fill": ("x: f32[500]; m: bool[500]",),
    "dot": (VECTORS,),
    "l2_normalize": ("x: f32[1500]",),
    "sgd_": ("p: f32[700]; g: f32[700]; lr = 0.1",),
    "depthwise_conv": ("x: f32[8,200]; w: f32[3]",),
    "quantize": ("x: f32[600]",),
    "kl_rows": ("p: f32[16,100]; q: f32[16,100]",),
    "scale_by_table": ("x: f32[400]",),
}
"""By the candidate's function, and its reference's where that has another name."""

TRITON_REFERENCES: dict[str, str] = {
    "split_k_workspace:matmul": "a: f16[64,256]; b: f16[256,64]",
    "split_k_atomic:matmul": "a: f32[64,128]; b: f32[128,64]",
    "persistent_add:add": VECTORS,
    "heuristic_add:add": VECTORS,
    "softmax:softmax": ROWS,
    "attention:attention": "q: f16[2,64,32]; k: f16[2,64,32]; v: f16[2,64,32]",
    "argmax:argmax": "x: f32[20,300]",
    "quantize:quantize": "x: f32[600]",
    "layer_norm_backward:layer_norm_backward": "x: f32[16,256]; w: f32[256]; g: f32[16,256]",
}
"""The same functions beside others of them: of kernels nothing is known in float64 on a GPU, nor what is exact."""

PLACES = [0, 5, 3, *[6] * 13, 1, 2, 4, *[6] * 13]

SERVING_PAIRS: dict[str, str] = {
    "layer_norm": "x: f16[20,300]; w: f16[300]; b: f16[300]; eps = 1e-5",
    "attention": "q: f16[2,70,32]; k: f16[2,70,32]; v: f16[2,70,32]; causal = True",
    "paged_attention": "q: f16[3,4,32]; k: f16[8,2,16,32]; v: f16[8,2,16,32]; table: i32[3,3] < 8; n: i32[3] in 1..48",
    "experts": f"x: f16[3,64]; w: f16[2,32,64]; g: f32[6] uniform(0, 1); ids: i32[32] = {PLACES}",
    "rotate": "q: f16[9,4,32]; at: i64[9] < 20; t: f16[20,32] uniform(-1, 1)",
    "largest": "x: f32[8,128]; k = 4",
    "scaled_product": "a: f8e4m3[32,64]; s: u8[32,2] in 120..132; b: f8e4m3[32,64]; t: u8[32,2] in 120..132",
}
"""Of kernels as they were and as they are: the functions are ``old_`` and ``new_``."""


HONEST: tuple[tuple[str, str, Mapping[str, str | tuple[str, ...]]], ...] = (
    ("honest.py", "", HONEST_INPUTS),
    ("held_out_honest.py", "", HELD_OUT_HONEST),
    ("counter_honest.py", "counter_", COUNTER_HONEST),
    ("counter_emulator.py", "", EMULATOR_HONEST),
    ("later_honest.py", "", {**LATER_HONEST, **LATER_COUNTER}),
    ("sixth_honest.py", "sixth_", {**SIXTH_HONEST, **SIXTH_COUNTER}),
    ("seventh_honest.py", "seventh_", SEVENTH_HONEST),
)
"""Candidates' file, what their names begin with, and inputs by function, or ``function:reference``."""

BESIDE: tuple[tuple[str, str, str, Mapping[str, str | tuple[str, ...]]], ...] = (
    ("honest.py", "kernel_", "{}", TRITON_REFERENCES),
    ("kernel_pairs_serving.py", "serving_", "old_{}", {f"new_{x}:{x}": line for x, line in SERVING_PAIRS.items()}),
    ("kernel_pairs_norms.py", "pair_", "{}", KERNEL_PAIRS),
    ("open_honest.py", "open_", "{}_reference", OPEN_HONEST),
    ("seventh_package_honest.py", "package_like_", "{}_reference", PACKAGE_LIKE_HONEST),
    ("ninth_honest.py", "ninth_", "{}_reference", NINTH_HONEST),
    ("tenth_honest.py", "tenth_", "{}_reference", TENTH_HONEST),
    ("tenth_rows_honest.py", "tenth_", "{}_reference", TENTH_ROWS_HONEST),
    ("tenth_calls_honest.py", "tenth_", "{}_reference", TENTH_CALLS_HONEST),
)
"""The same with references in the candidates' file, and how these are named."""

TENTH_TASKS = ("products", "masked", "huber", "layouts")
"""In KernelBench's layout, a task and a candidate each."""


def honest_cases() -> list[Case]:
    """Candidates that should get a verdict on their speed."""
    found = []
    rows = [(file, prefix, "", table) for file, prefix, table in HONEST]
    for file, prefix, named, table in (*rows, *BESIDE):
        for key, inputs in table.items():
            function, _, other = key.partition(":")
            reference = f"{file}::{named.format(other or function)}" if named else other or function
            name = prefix + function.removeprefix("new_")
            lines = (inputs,) if isinstance(inputs, str) else inputs
            found.append(Case(name, "honest", f"{file}::{function}", reference, lines))
    for name, files in SIXTH_HONEST_FILES.items():
        found.append(Case(f"sixth_{name}", "honest", *files, ()))
    drop = "x: f32[800]; seed: i64[1] < 1000000; p = 0.25"
    found.append(Case("dropout", "honest", "honest.py::dropout", "triton_references.py::dropout", (drop,)))
    found.append(Case("kernelbench", "honest", "kernelbench_candidate.py", "kernelbench_task.py", ()))
    for name in TENTH_TASKS:
        files = (f"tenth_files/{name}_candidate.py", f"tenth_files/{name}_task.py")
        found.append(Case(f"tenth_{name}", "honest", *files, ()))
    for name in ("gpu_mode", "gpu_mode_output", "tenth_files/grey", "tenth_files/sorted"):
        inputs = (str(HERE / name / "task.yml"),)
        title = name.replace("_files/", "_")
        found.append(Case(title, "honest", f"{name}/submission.py", f"{name}/reference.py", inputs))
    return [*found, *_fair()]


ADD = ("add", VECTORS)
SUM = ("row_sum", "x: f32[20,300]")
MM = ("matmul", "a: f16[64,512]; b: f16[512,32]")
MM32 = ("matmul", "a: f32[64,512]; b: f32[512,32]")
NORM = ("rms_norm", "x: f32[16,256]; w: f32[256]")
SOFT = ("softmax", "x: f32[16,256]")

EXPLOITS: tuple[tuple[str, str, str, tuple[str, str]], ...] = (
    ("event_clock", "patched clock", "clocks.py::event_clock", ADD),
    ("host_clock", "patched clock", "clocks.py::host_clock", ADD),
    ("benchmark_function", "patched clock", "clocks.py::benchmark_function", ADD),
    ("statistics", "patched clock", "clocks.py::statistics_functions", ADD),
    ("side_stream", "other stream, other thread", "streams.py::side_stream", ADD),
    ("side_stream_kernel", "other stream, other thread", "streams.py::side_stream_kernel", ADD),
    ("late_thread", "other stream, other thread", "streams.py::late_thread", ADD),
    ("exit_handler", "other stream, other thread", "streams.py::exit_handler", ADD),
    ("subclass", "lazy result", "lazy.py::subclass", ADD),
    ("method", "lazy result", "lazy.py::method", ADD),
    ("generator", "lazy result", "lazy.py::generator", ADD),
    ("by_pointer", "cache", "caches.py::by_pointer", ADD),
    ("by_shape", "cache", "caches.py::by_shape", ADD),
    ("by_content", "cache", "caches.py::by_content", ADD),
    ("at_import", "cache", "caches.py::at_import", ADD),
    ("known_seeds", "shortcut for the inputs seen", "caches.py::known_seeds", ADD),
    ("every_fifteenth", "batch and skip", "caches.py::every_fifteenth", ADD),
    ("second_call", "warm-up detection", "caches.py::second_call", ADD),
    ("uninitialised", "memory reuse", "memory.py::uninitialised", ADD),
    ("one_block", "memory reuse", "memory.py::one_block", ADD),
    ("freed", "memory reuse", "memory.py::freed", ADD),
    ("zeroed_input", "modified inputs", "memory.py::zeroed_input", ADD),
    ("input_as_result", "modified inputs", "memory.py::input_as_result", ADD),
    ("written_input", "modified inputs", "memory.py::written_input", ADD),
    ("overlapping", "memory reuse", "memory.py::overlapping", ADD),
    ("garbage_objects", "looking around", "looking.py::garbage_objects", ADD),
    ("frames", "looking around", "looking.py::frames", ADD),
    ("maps", "looking around", "looking.py::maps", ADD),
    ("parents_memory", "looking around", "looking.py::parents_memory", ADD),
    ("environment", "looking around", "looking.py::environment", ADD),
    ("stand_ins_seen", "warm-up detection", "looking.py::stand_ins_seen", ADD),
    ("nan", "NaN or zeros as wildcards", "numbers_.py::nan", ADD),
    ("infinity", "NaN or zeros as wildcards", "numbers_.py::infinity", ADD),
    ("zeros", "NaN or zeros as wildcards", "numbers_.py::zeros", ADD),
    ("constant_task", "NaN or zeros as wildcards", "numbers_.py::constant_task", ("mean_of_softmax", "x: f32[16,256]")),
    ("half_accumulator", "lower precision", "numbers_.py::half_accumulator", MM),
    ("bfloat16_inside", "lower precision", "numbers_.py::bfloat16_inside", NORM),
    ("tf32", "lower precision", "numbers_.py::tf32", MM32),
    ("eight_bits", "lower precision", "numbers_.py::eight_bits", MM),
    ("short_series", "lower precision", "numbers_.py::short_series", SOFT),
    ("large_numbers", "shortcut for the inputs seen", "numbers_.py::large_numbers", ("row_mean", "x: bf16[8,8192]")),
    ("first_columns", "shortcut for the inputs seen", "numbers_.py::first_columns", SUM),
    ("constant_result", "shortcut for the inputs seen", "numbers_.py::constant_result", SUM),
    ("flag_in_output", "done-flag", "state.py::flag_in_output", ADD),
    ("flag_in_module", "done-flag", "state.py::flag_in_module", ADD),
    ("counter", "state", "state.py::counter", ADD),
    ("reads_outside", "uninitialised reads", "state.py::reads_outside", ADD),
    ("empty_workspace", "uninitialised reads", "state.py::empty_workspace", ADD),
    ("writes_outside", "neighbours", "state.py::writes_outside", ADD),
    ("neighbour", "neighbours", "state.py::neighbour", ADD),
    ("library", "library calls", "libraries.py::library", MM),
    ("library_and_kernel", "library calls", "libraries.py::library_and_kernel", MM),
    ("compiled", "library calls", "libraries.py::compiled", ADD),
    ("host_computes", "library calls", "libraries.py::host_computes", ADD),
    ("driver_launch", "escaping the capture", "libraries.py::driver_launch", ADD),
    ("original_run", "escaping the capture", "libraries.py::original_run", ADD),
    ("warmup_only", "escaping the capture", "libraries.py::warmup_only", ADD),
    ("python_by_an_overload", "operators beside kernels", "beside_operators.py::python_by_an_overload", ADD),
    ("file_by_a_dtype", "operators beside kernels", "beside_operators.py::file_by_a_dtype", ADD),
    ("dtype_by_a_number", "operators beside kernels", "beside_operators.py::dtype_by_a_number", ADD),
    ("filled_by_an_expanded_view", "operators beside kernels", "beside_operators.py::filled_by_an_expanded_view", ADD),
    ("copy_of_the_first_result", "operators beside kernels", "beside_operators.py::copy_of_the_first_result", ADD),
    ("torch_alone", "operators beside kernels", "beside_operators.py::torch_alone", ADD),
    ("other_data", "operators beside kernels", "beside_operators.py::other_data", ADD),
    ("one_tile", "repeated content", "tiles.py::one_tile", ADD),
    ("one_row", "repeated content", "tiles.py::one_row", SOFT),
    ("half_of_rows", "impossible time", "tiles.py::half_of_rows", SUM),
    ("persisting_lines", "persisting L2 window", "tiles.py::persisting_lines", SUM),
    ("slowed_reference", "slowed reference", "processes.py::slowed_reference", ADD),
    ("daemon", "surviving children", "processes.py::daemon", ADD),
    ("hang", "hangs", "processes.py::hang", ADD),
    ("memory_bomb", "archive bombs", "processes.py::memory_bomb", ADD),
    ("poisoned_cache", "poisoned caches", "processes.py::poisoned_cache", ADD),
    ("kills_parent", "tampering", "processes.py::kills_parent", ADD),
    ("exits", "tampering", "processes.py::exits", ADD),
    ("prints_verdict", "tampering", "processes.py::prints_verdict", ADD),
    ("writes_results", "tampering", "processes.py::writes_results", ADD),
    ("patched_judge", "tampering", "processes.py::patched_judge", ADD),
    ("forged_answer", "forged recording", "processes.py::forged_answer", ADD),
    ("forged_inputs", "forged recording", "processes.py::forged_inputs", ADD),
    ("answer_bomb", "archive bombs", "processes.py::answer_bomb", ADD),
)  # fmt: skip


FAIR: dict[str, str] = {
    "no_negative_branch": "a line declares all numbers as above zero",
    "low_words": "a line declares all numbers as below 1,000, so that no sum of 300 reaches the high half",
    "fast_exponential": "it has the product and ex2.approx of tl.exp, and is right on a GPU, too",
    "no_tail_mask": "a line declares one size, which is a whole number of blocks",
    "table_of_all_seeds": "it computes what its table lacks: nearly all, since a task has 2**24 seeds",
    "tf32_left_on": "many files leave the same when they are imported, and a remark says it",
    "wrong_backward": "its forward pass alone was named, and a remark says it",
    "bfloat16_log_of_sum": "it is within the limit that docs/judge.md names",
    "others_time": "all is computed; the call is answered as if done, and changes nothing",
    "others_owner": "the same",
    "device_mode": "the same",
    "folder_filled": "all is computed; the folder is within its limit, and removed",
    "descriptors_that_do_not_wait": "all is computed; nobody else has these descriptors",
    "zeros_by_fill": "a GPU times its fill, as it is part of the call",
    "table_of_known": "torch's operators on known numbers are replayed and timed",
    "library_and_kernel": "torch's product is replayed between the kernels, and a GPU times it: UNTIMED without one",
    "table_by_operators": "the same of its table, which is made in each call",
    "sorted_by_host": "a line declares the keys as known, others are right, too, and a remark tells the constants",
    "wrong_for_nan_later": "a maximum may lose NaN in any call, as tl.maximum does",
    "erf_by_polynomial": "its error is 1.5 roundings in the root mean square, torch's 1.0; the largest are 12 and 29",
    "tanh_for_erf": "its error is 0.0012 in the root mean square, that of the reference, which rounds inside, 0.0015",
}
"""Attempts that are right for all that their inputs declare, or that their task makes, and why: they count as honest.
The verdict shows the line, or names the table."""


REMARKS = {
    "tf32_left_on": "it leaves products' precision of torch otherwise for the whole program",
    "wrong_backward": "of WrongBackward the forward pass alone is judged",
    "sorted_by_host": "1 constants of 512 B made before the launches, the largest: 512 B",
}
"""What a verdict on some of these must say."""


def _fair() -> list[Case]:
    fair = (case for case in _attempts() if case.name in FAIR)
    return [replace(case, family="honest", remark=REMARKS.get(case.name, "")) for case in fair]


def exploit_cases() -> list[Case]:
    """Candidates that must never be FASTER."""
    return [case for case in _attempts() if case.name not in FAIR]


def _attempts() -> list[Case]:
    found = [
        Case(name, family, f"exploits/{at}", reference, (inputs,) if inputs else ())
        for name, family, at, (reference, inputs) in (
            *EXPLOITS,
            *HELD_OUT_EXPLOITS,
            *HOST_ATTEMPTS,
            *KERNEL_ATTEMPTS,
            *EMULATOR_ATTEMPTS,
            *LATER_ATTEMPTS,
            *SIXTH_ATTEMPTS,
            *SEVENTH_ATTEMPTS,
            *EIGHTH_ATTEMPTS,
            *NINTH_ATTEMPTS,
            *TENTH_ATTEMPTS,
        )
    ]
    no_bias = ("exploits/held_out_no_bias.py", "kernelbench_task.py")
    return [*found, Case("no_bias", "shortcut for the inputs seen", *no_bias, ())]
