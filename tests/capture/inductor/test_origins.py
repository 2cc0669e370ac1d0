"""What Inductor's generated modules say of their kernels' operators."""

from __future__ import annotations

from pathlib import Path
from types import FunctionType, SimpleNamespace

from kerntune.capture.inductor.launches import KernelComment, described_in_text, described_launch

MODULE = '''
# kernel path: /tmp/somewhere/kernel.py
# Topologically Sorted Source Nodes: [sin, mul, add], Original ATen: [aten.sin, aten.mul, aten.add, aten.mul]
# Graph fragment:
#   %mul : Tensor = call_function[target=torch.ops.aten.mul.Tensor](args = (%sin, 2), kwargs = {})
triton_poi_fused_add_mul_sin_0 = async_compile.triton('triton_poi_fused_add_mul_sin_0', """
# no comment of the module
""", device_str='cuda')


triton_tem_fused_1 = async_compile.triton('triton_tem_fused_1', """""")


# Topologically Sorted Source Nodes: [], Original ATen: [prims.prepare_softmax_online]
triton_red_fused_2 = async_compile.triton('triton_red_fused_2', """""", device_str='cuda')

def call(args):
    # Topologically Sorted Source Nodes: [gelu], Original ATen: [aten.gelu]
    triton_red_fused_2.run(1)
'''


def test_operators_of_each_kernel_as_often_as_they_occur() -> None:
    assert {k: x.origins for k, x in described_in_text(MODULE).items()} == {
        "triton_poi_fused_add_mul_sin_0": ("aten.add", "aten.mul", "aten.mul", "aten.sin"),
        "triton_tem_fused_1": (),
        "triton_red_fused_2": ("prims.prepare_softmax_online",),
    }


def test_the_module_that_launches_is_found(tmp_path: Path) -> None:
    path = tmp_path / "generated.py"
    path.write_text(MODULE)
    tuner = SimpleNamespace()
    code = compile("def call(ask):\n    return ask()\n", str(path), "exec").co_consts[0]
    call = FunctionType(code, {"triton_red_fused_2": tuner, "triton_tem_fused_1": object()})
    assert call(lambda: described_launch(tuner, "triton_red_fused_2")).origins == ("prims.prepare_softmax_online",)
    assert call(lambda: described_launch(tuner, "triton_tem_fused_1")) == KernelComment()  # another tuner's name


def test_a_module_that_is_gone_says_nothing(tmp_path: Path) -> None:
    tuner = SimpleNamespace()
    code = compile("def call(ask):\n    return ask()\n", str(tmp_path / "gone.py"), "exec").co_consts[0]
    assert FunctionType(code, {"kernel": tuner})(lambda: described_launch(tuner, "kernel")) == KernelComment()


def test_a_module_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "generated.py"
    path.write_text(MODULE)
    tuner = SimpleNamespace()
    code = compile("def call(ask):\n    return ask()\n", str(path), "exec").co_consts[0]
    call = FunctionType(code, {"triton_red_fused_2": tuner})
    for _ in range(2):
        assert call(lambda: described_launch(tuner, "triton_red_fused_2")).origins == ("prims.prepare_softmax_online",)
        path.unlink(missing_ok=True)
