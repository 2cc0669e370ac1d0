"""A compiled kernel as C: its grid in C and C++, its checks, attributes and scratch memory, without Triton."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import triton
from hypothesis import given
from hypothesis import strategies as st
from stub_driver import COMPILER, built, i32, needs_compiler

from kerntune.base.recording import Binary, Launch, Param, Scratch, TensorMap
from kerntune.errors import GridError, UsageError
from kerntune.gpu.c_launcher import CKernel, c_names, header, source
from kerntune.grids import FixedGrid, Grid, Grid1D, Grid2DWithYZOverflow
from kerntune.grids.grid import grid_of_text, traced

INCLUDES = Path(triton.__file__).parent / "backends" / "nvidia" / "include"

PARAMS = (Param("x", "*fp32"), Param("n", "i32"), Param("rows", "i64"))


def kernel(
    grid: Grid, name: str = "k", params: tuple[Param, ...] = PARAMS, cpp: bool = False, **binary: Any
) -> CKernel:
    code = Binary("cubin", "sm_90a", "symbol", "0", "0", "", "", "3.9.0", "13", {}, {}, 4)
    made = {f: getattr(code, f) for f in code.__struct_fields__} | binary
    launch = Launch("kernel", "", 0, (1, 1, 1), params)
    return CKernel(name, launch, Binary(**made), b"\x7fELF" * 20, grid, {"x": 16}, {}, (), cpp)


def program(folder: Path, found: list[CKernel], main: str, language: str) -> Path:
    """Compiled with every warning an error."""
    compiler = shutil.which("c++") if language == "cpp" else COMPILER
    if compiler is None:
        pytest.skip("needs a C++ compiler")
    for one in found:
        (folder / f"{one.name}.h").write_text(header(one))
        (folder / f"{one.name}.{language}").write_text(source(one))
    includes = "".join(f'#include "{one.name}.h"\n' for one in found)
    (folder / f"main.{language}").write_text(f"{includes}#include <stdio.h>\nint main(void) {{ {main} return 0; }}\n")
    names = [str(folder / f"{name}.{language}") for name in (*(one.name for one in found), "main")]
    flags = ["-std=c++11" if language == "cpp" else "-std=c99", "-Wall", "-Wextra", "-Werror"]
    out = folder / "program"
    command = [compiler, *flags, "-I", str(INCLUDES), *names, "-L", str(folder), "-lcuda", "-o", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out


GRIDS = {
    "cdiv(n, 128)": (4000, (32, 1, 1)),
    "cdiv(n, 128) * 2 + 1, rows": (4000, (65, 3, 1)),
    "max(1, min(132, cdiv(n, 128)))": (0, (1, 1, 1)),
    "min(7, rows, cdiv(n, 128)), max(rows, 2, n)": (64000, (3, 64000, 1)),
    "5": (1, (5, 1, 1)),
}


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("language", ["c", "cpp"])
def test_grids_are_computed_as_in_python(tmp_path: Path, language: str) -> None:
    driver = built(tmp_path)
    found, calls, expected = [], "unsigned g[3];", []
    overflowing = Grid2DWithYZOverflow("n", "rows", 128, 1)
    for i, (text, (n, triple)) in enumerate([*GRIDS.items(), ("", (300, overflowing({"n": 300, "rows": 3})))]):
        grid: Grid = grid_of_text(text) if text else overflowing
        assert grid({"n": n, "rows": 3}) == triple
        one = kernel(grid, f"k{i}", cpp=language == "cpp")
        given = ", ".join(["g", *(str({"n": n, "rows": 3}[p]) for p in ("n", "rows") if p in grid.names)])
        calls += f'if (k{i}_grid({given})) return 1; printf("%u %u %u\\n", g[0], g[1], g[2]);'
        expected.append(" ".join(map(str, triple)))
        found.append(one)
    ran = subprocess.run([program(tmp_path, found, calls, language)], capture_output=True, text=True, check=True,
                         env=driver.environment())  # fmt: skip
    assert ran.stdout.splitlines() == expected


@needs_compiler
def test_attributes_and_scratch(tmp_path: Path) -> None:
    driver = built(tmp_path, sizes=(8, 4, 8, 8, 8))
    options = {"num_ctas": 2, "cooperative": True, "pdl": True, "shared": 1024, "global_scratch": Scratch(64, 128)}
    one = kernel(grid_of_text("n, 2"), **options)
    call = 'k_handle k; if (k_load(&k)) return 1; printf("%d", k_launch(&k, 0, 256, 3, 7, {scratch}));'
    for scratch, code in (("512", 0), ("520", 1)):
        ran = subprocess.run([program(tmp_path, [one], call.format(scratch=scratch), "c")], capture_output=True,
                             text=True, check=True, env=driver.environment())  # fmt: skip
        assert ran.stdout == str(code)
    (launch,) = driver.launches()
    assert (launch.grid, launch.block, launch.shared) == ((6, 2, 1), (128, 1, 1), 1024)
    assert launch.attributes == {6: (1, 0, 0), 2: (1, 0, 0), 4: (2, 1, 1), 5: (1, 0, 0)}
    assert launch.params[1:] == (i32(3), (7).to_bytes(8, "little"), (512).to_bytes(8, "little"), bytes(8))


@needs_compiler
def test_failures_of_the_driver_are_returned(tmp_path: Path) -> None:
    driver = built(tmp_path)
    call = 'k_handle k; unsigned g[3]; printf("%d %d", k_load(&k), k_grid(g, 1LL << 40));'
    made = program(tmp_path, [kernel(grid_of_text("rows"))], call, "c")
    driver.fails = "cuModuleLoadData"
    ran = subprocess.run([made], capture_output=True, text=True, check=True, env=driver.environment())
    assert ran.stdout == "1 1", "a grid that no device can launch, too"


def test_a_tensor_map_is_passed_by_its_address() -> None:
    spec = TensorMap(3, 2, 6, (64, 32), (4096, 1024), (1024, 1))
    params = (Param("x.map", "nvTmaDesc", tensor_map=spec), Param("x.shape[0]", "i32"), Param("x.strides[0]", "i64"))
    one = kernel(FixedGrid(4), params=params)
    assert "const CUtensorMap *x_map, int32_t x_shape_0, int64_t x_strides_0" in header(one)
    assert "x_map: tensor map: box 64x32, swizzle 3, element type 6" in header(one)
    assert "{(void *)x_map, &x_shape_0" in source(one)


@given(
    st.lists(
        st.sampled_from(["x", "int", "grid", "x.shape[0]", "x_shape_0", "0", "a b", "_", "while", "é"]), max_size=9
    )
)
def test_names_are_distinct_and_of_c(names: list[str]) -> None:
    found = c_names(names)
    assert len(set(found)) == len(names)
    assert all(name.isidentifier() and name not in ("int", "grid", "while") for name in found)


def test_what_c_can_not_have_is_refused() -> None:
    with pytest.raises(UsageError, match="kernel k: the grid needs m, which is no integer argument"):
        kernel(Grid1D("m", 128))
    scalars = (*PARAMS, *(Param(kind, kind) for kind in ("fp16", "bf16", "fp32", "fp64")))
    for name in ("x", "fp16", "bf16", "fp32", "fp64"):
        with pytest.raises(UsageError, match=f"kernel k: the grid needs {name}, which is no integer argument"):
            kernel(Grid1D(name, 128), params=scalars)
    with pytest.raises(UsageError, match="'int' can't name a function in C"):
        kernel(Grid1D("n", 128), "int")
    with pytest.raises(UsageError, match="parameter odd has type tensordesc, which C can't pass"):
        header(kernel(Grid1D("n", 128), params=(*PARAMS, Param("odd", "tensordesc"))))


# grids of other forms


def cdiv(a: Any, b: Any) -> Any:
    return (a + b - 1) // b


TRACED = [
    (lambda m: (cdiv(m["n"], m["BLOCK"]),), "cdiv(n, 128)"),
    (lambda m: (triton.cdiv(m["n"], m["BLOCK"]), m["rows"], 2), "cdiv(n, 128), rows, 2"),
    (lambda m: (cdiv(m["n"], 64) * cdiv(m["rows"], 32) + 1,), "cdiv(n, 64) * cdiv(rows, 32) + 1"),
    (lambda m: (2 * m["n"] + m["rows"] + 3,), "n * 2 + rows + 3"),
    (lambda m: m["n"], "n"),
    ((3, 2), "3, 2"),
]


@pytest.mark.parametrize(("function", "text"), TRACED, ids=[t for _, t in TRACED])
def test_a_grid_function_is_followed(function: Any, text: str) -> None:
    found, same = traced(function, {"BLOCK": 128}, {"n", "rows"}, {"x"}), grid_of_text(text)
    for n, rows in ((0, 0), (1, 7), (128, 1), (129, 33)):
        assert found({"n": n, "rows": rows}) == same({"n": n, "rows": rows})


UNTRACEABLE = {
    "asks the tensor x for its shape": lambda m: (m["x"].shape[0],),
    "compares or converts an argument": lambda m: (min(m["n"], 132),),
    "divides by anything but a rounding up": lambda m: (m["n"] // 4,),
    "subtracts 1": lambda m: (m["n"] - 1,),
    "subtracts an argument": lambda m: (m["n"] - m["rows"],),
}


@pytest.mark.parametrize("why", UNTRACEABLE)
def test_a_grid_function_that_can_not_be_followed_is_named(why: str) -> None:
    with pytest.raises(GridError, match=f"the grid function {why}, which can't be followed: write the grid as text"):
        traced(UNTRACEABLE[why], {}, {"n", "rows"}, {"x"})


@pytest.mark.parametrize("text", ["", "n -", "n - 1", "n / 2", "open('x')", "n.real", "1.5", "'n'", "a, b, c, d", "()"])
def test_texts_that_are_no_grid_are_refused(text: str) -> None:
    with pytest.raises(GridError):
        grid_of_text(text)


@pytest.mark.parametrize(("ctas", "widest"), [(1, 2147483647), (2, 1073741823), (16, 134217727)])
def test_a_grid_that_no_device_has_is_refused(ctas: int, widest: int) -> None:
    """A cluster's blocks count each."""
    text = source(kernel(Grid1D("n", 128), num_ctas=ctas))
    assert f"  if (x > {widest} || y > 65535 || z > 65535) return CUDA_ERROR_INVALID_VALUE;" in text
    assert ("NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1" in text) is (ctas == 16)
    assert (f"config.gridDimX = grid[0] * {ctas};" in text) is (ctas > 1)


@pytest.mark.parametrize(("shared", "asks"), [(48 << 10, False), ((48 << 10) + 1, True)])
def test_shared_memory_above_48_kib_is_asked_for(shared: int, asks: bool) -> None:
    text = source(kernel(Grid1D("n", 128), shared=shared))
    assert ("MAX_DYNAMIC_SHARED_SIZE_BYTES, most - own" in text) is asks
    assert f"config.sharedMemBytes = {shared}, " in text


@pytest.mark.parametrize(
    ("binary", "attributes"),
    [
        ({}, []), ({"pdl": True}, ["PROGRAMMATIC_STREAM_SERIALIZATION"]), ({"cooperative": True}, ["COOPERATIVE"]),
        ({"num_ctas": 2}, ["CLUSTER_DIMENSION", "CLUSTER_SCHEDULING_POLICY_PREFERENCE"]),
        ({"pdl": True, "cooperative": True, "num_ctas": 4}, [
            "PROGRAMMATIC_STREAM_SERIALIZATION", "COOPERATIVE", "CLUSTER_DIMENSION",
            "CLUSTER_SCHEDULING_POLICY_PREFERENCE"]),
    ],
)  # fmt: skip
def test_a_launch_has_the_attributes_of_tritons_own(binary: dict[str, Any], attributes: list[str]) -> None:
    lines = source(kernel(Grid1D("n", 128), **binary)).splitlines()
    found = [line.split("ATTRIBUTE_")[1].rstrip(";") for line in lines if ".id = CU_LAUNCH_ATTRIBUTE_" in line]
    assert found == attributes
    assert any("numAttrs = count" in line for line in lines) is bool(attributes)
    assert f"const unsigned count = {len(attributes)};" in "".join(lines) or not attributes
