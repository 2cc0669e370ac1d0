"""Triton's C launchers: how they are called by series, and what the C front is told of a kernel."""

from __future__ import annotations

import struct
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from kerntune.kernels.compat import launcher

SHAPE, STRIDES = [("shape[0]", "i32"), ("shape[1]", "i32")], [("strides[0]", "i64"), ("strides[1]", "i64")]
WIDE = [("shape[0]", "i64"), ("shape[1]", "i64"), ("strides[0]", "i64"), ("strides[1]", "i64")]


@pytest.mark.parametrize(
    ("kind", "tma", "flags", "parts"),
    [
        ("*fp32", True, 1, [("", "*fp32")]),
        ("tensordesc<fp16[64, 32]>", True, 1, [("map", "nvTmaDesc"), *SHAPE, *STRIDES]),
        ("tensordesc<fp16[64, 32]>", False, 1, [("base", "*fp16"), *WIDE, ("nan_padding", "i1"), *SHAPE, *STRIDES]),
        ("tensordesc_im2col<fp8e5[8,8],3>", False, 2,
         [("base", "*fp8e5"), *WIDE, ("nan_padding", "i1"), ("round_f32_to_tf32", "i1"), *SHAPE, *STRIDES]),
        ("tensordesc<fp16[64]>", True, 2, [("map", "nvTmaDesc"), SHAPE[0], STRIDES[0]]),
    ],
)  # fmt: skip
def test_a_descriptors_parameters(
    monkeypatch: pytest.MonkeyPatch, kind: str, tma: bool, flags: int, parts: list[tuple[str, str]]
) -> None:
    monkeypatch.setattr(launcher, "_decomposed_flags", lambda: flags)
    assert launcher.expand_type(kind, tma) == parts


LATER = "None, None, None, kt_scratch, None, kt_annotations"
HEAD = "kt_launch(kt_x, kt_y, kt_z, kt_current_stream(kt_device), kt_function, kt_cooperative, kt_pdl, "


@pytest.mark.parametrize(
    ("series", "order", "call"),
    [
        ("3.6", 36, f"{HEAD}kt_scratch, None, kt_packed, None, None, None, {{arguments}})"),
        *((later, 37, f"{HEAD}kt_packed, {LATER}, kt_types, ({{arguments}}))") for later in ("3.7", "3.8", "3.9")),
        ("4.0", None, "pass  # {arguments}"),
    ],
)  # fmt: skip
def test_how_tritons_launcher_is_called(
    monkeypatch: pytest.MonkeyPatch, series: str, order: int | None, call: str
) -> None:
    monkeypatch.setattr(launcher, "triton_series", lambda: series)
    assert (launcher.direct_order(), launcher.direct_call()) == (order, call)
    assert (launcher.direct_values(kernel_of()) is None) == (order is None)


class CudaLauncher(SimpleNamespace):
    """As Triton's, by its name."""


def kernel_of(signature: tuple[str, ...] = ("*fp32", "i32"), num_ctas: int = 1, **words: Any) -> Any:
    found = {
        "launch": "launch", "profile_scratch_size": 0, "global_scratch_size": 24, "global_scratch_align": 16,
        "num_ctas": num_ctas, "launch_cooperative_grid": False, "launch_pdl": False, "arg_annotations": "annotations",
        "kernel_signature": "types", **words,
    }  # fmt: skip
    kind = CudaLauncher if words.get("name", "CudaLauncher") == "CudaLauncher" else SimpleNamespace
    metadata = SimpleNamespace(num_ctas=num_ctas, num_warps=4, shared=1000, target=SimpleNamespace(warp_size=32))
    source = SimpleNamespace(signature=dict(enumerate(signature)))
    return SimpleNamespace(run=kind(**found), metadata=metadata, src=source, function=1 << 40)


@pytest.fixture
def triton_3_9(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "triton_series", lambda: "3.9")


@pytest.mark.usefixtures("triton_3_9")
def test_values_of_a_direct_call() -> None:
    """Scratch memory is of all blocks of a cluster."""
    assert launcher.direct_values(kernel_of(num_ctas=2)) == ("launch", False, False, "annotations", "types", 48, 16)
    for words in ({"name": "HIPLauncher"}, {"profile_scratch_size": 8}, {"gsan_enabled": True}):
        assert launcher.direct_values(kernel_of(**words)) is None


@pytest.mark.usefixtures("triton_3_9")
@pytest.mark.parametrize(
    ("kernel", "types"),
    [
        (kernel_of(), b"Pi"),
        (kernel_of(("i1", "u8", "i16", "u32", "i64", "fp32", "f32", "fp64")), b"bbhilffd"),
        (kernel_of(("constexpr", "*i8")), b"-P"),
        (kernel_of(("i32",) * 8), b"iiiiiiii"),
        (kernel_of(("i32",) * 9), None),
        (kernel_of(("fp16",)), None),
        (kernel_of(num_ctas=2), None),
        (kernel_of(launch_cooperative_grid=True), None),
        (kernel_of(launch_pdl=True), None),
        (kernel_of(profile_scratch_size=1), None),
    ],
)
def test_what_the_driver_is_told_of_a_kernel(kernel: Any, types: bytes | None) -> None:
    wanted = None if types is None else struct.pack("QII8s", 1 << 40, 128, 1000, types)
    assert launcher.driver_plan(kernel, 8) == wanted


@pytest.mark.parametrize(
    ("has_launcher", "signature", "descriptors", "builds"),
    [(True, {"x": "*fp32"}, None, True), (True, {"x": "tensordesc<fp16[8]>"}, None, False),
     (True, {"x": "tensordesc<fp16[8]>"}, ("meta",), True), (False, {"x": "*fp32"}, None, False),
     (False, {"x": "tensordesc<fp16[8]>"}, None, False)],
)  # fmt: skip
def test_a_launcher_is_built_beforehand_where_triton_has_one_for_each_signature(
    monkeypatch: pytest.MonkeyPatch, has_launcher: bool, signature: Any, descriptors: Any, builds: bool
) -> None:
    made: list[Any] = []
    driver = SimpleNamespace(CudaLauncher=lambda *words: made.append(words))
    if has_launcher:
        driver.make_launcher = None
    monkeypatch.setattr("triton.backends.nvidia.driver", driver)
    monkeypatch.setitem(sys.modules, "triton.backends.nvidia.driver", driver)
    monkeypatch.setattr(launcher, "source_of", lambda *words: words)
    launcher.prepare_launcher("jit", signature, "constexprs", "attrs", descriptors)
    assert len(made) == builds
    for source, metadata in made:
        assert source == ("jit", signature, "constexprs", "attrs")
        assert vars(metadata) == {
            "global_scratch_size": 0, "global_scratch_align": 0, "profile_scratch_size": 0, "profile_scratch_align": 0,
            "launch_cooperative_grid": 0, "launch_pdl": 0, "tensordesc_meta": descriptors,
        }  # fmt: skip


@pytest.mark.parametrize(
    ("raised", "here", "told"),
    [(None, False, ""), ("0 active drivers", False, "0 active drivers"), ("no C compiler", True, "")],
)
def test_why_triton_has_no_driver(monkeypatch: pytest.MonkeyPatch, raised: str | None, here: bool, told: str) -> None:
    class Driver:
        @property
        def active(self) -> None:
            if raised is not None:
                raise RuntimeError(raised)

    found = sys.modules["triton.runtime.driver"]
    backend = SimpleNamespace(driver=SimpleNamespace(is_active=lambda: here))
    monkeypatch.setattr(found, "driver", Driver())
    monkeypatch.setattr(found, "backends", {"nvidia": backend})
    assert launcher.missing_driver() == told
    launcher.prepare_driver()


def test_an_address_that_does_not_answer_as_torch_does_is_none() -> None:
    import torch

    folder, (library, symbol, words) = torch.__path__[0], launcher.STATE_FUNCTIONS[0]
    now = torch.is_grad_enabled()
    assert launcher._setting(folder, library, symbol, words, now) == launcher.setting_addresses()[0] != 0
    assert launcher.setting_addresses()[1] != 0
    assert launcher._setting(folder, library, symbol, words, not now) == 0
    assert launcher._setting(folder, library, "no_such_function", words, now) == 0
    assert launcher._setting(folder, "no_such_library.so", symbol, words, now) == 0


@pytest.mark.parametrize(("hip", "number"), [(None, 2), ("6.4", 10)])
def test_what_dlpack_s_exchange_says(monkeypatch: pytest.MonkeyPatch, hip: str | None, number: int) -> None:
    """``DLDeviceType`` of dlpack.h: ``kDLCUDA`` is 2, ``kDLROCM`` is 10."""
    import torch

    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(torch.Tensor, "__dlpack_c_exchange_api__", "capsule", raising=False)
    found = launcher.tensor_exchange()
    assert found is not None
    *words, samples = found
    assert words == ["capsule", number, (torch.Tensor, torch.nn.Parameter)]
    assert {str(dtype) for _, dtype in samples} >= {"torch.bool", "torch.bfloat16", "torch.uint64"}
    assert all((x.dtype, x.shape, x.device.type) == (dtype, (0,), "cpu") for x, dtype in samples)
    monkeypatch.delattr(torch.Tensor, "__dlpack_c_exchange_api__")
    assert launcher.tensor_exchange() is None


@pytest.mark.parametrize(
    ("words", "own", "everywhere", "debug"),
    [({}, False, False, False), ({}, True, False, True), ({}, False, True, True),
     ({"debug": False}, True, False, False),
     ({"debug": True}, False, False, True), ({"debug": False}, False, True, True)],
)  # fmt: skip
@pytest.mark.parametrize("casts", [None, True])
def test_keywords_that_triton_adds_to_a_launch(
    monkeypatch: pytest.MonkeyPatch, words: dict[str, Any], own: bool, everywhere: bool, debug: bool, casts: bool | None
) -> None:
    """A launch's own word comes before the kernel's, and the setting of the process turns it on for all."""
    compilation = SimpleNamespace(
        instrumentation_mode="mode", **({} if casts is None else {"fpsan_homomorphic_casts": 1})
    )
    knobs = SimpleNamespace(runtime=SimpleNamespace(debug=everywhere), compilation=compilation)
    monkeypatch.setattr("triton.knobs", knobs)
    found = launcher.run_options(SimpleNamespace(debug=own), {"BLOCK": 4, **words})
    later = {} if casts is None else {"fpsan_homomorphic_casts": 1}
    assert found == {"BLOCK": 4, "debug": debug, "instrumentation_mode": "mode", **later}
