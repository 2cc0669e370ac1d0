"""What Inductor's generated modules say of their kernels' operators."""

from __future__ import annotations

from pathlib import Path
from types import FunctionType, SimpleNamespace

from kerntune.capture.inductor.launches import comment_of_launch, comments_in_text
from kerntune.kernels.compat.versions import torch_version
from kerntune.kernels.source import GeneratedFrom

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
    assert {name: said.origins for name, said in comments_in_text(MODULE).items()} == {
        "triton_poi_fused_add_mul_sin_0": ("aten.add", "aten.mul", "aten.mul", "aten.sin"),
        "triton_tem_fused_1": (),
        "triton_red_fused_2": ("prims.prepare_softmax_online",),
    }


SOFTMAX = """
# Topologically Sorted Source Nodes: [softmax_1], Original ATen: [aten._softmax]
# Graph fragment:
#   %arg0_1 : Tensor "f16[8, 8][8, 1]cuda:0" = PlaceHolder[target=arg0_1]
#   %{a} : [num_users={users}] = call_function[target=torch.ops.aten.exp.default](args = (%arg0_1,), kwargs = {{}})
#   %{b} : Tensor = call_function[target=torch.ops.aten.mul.Tensor](args = (%{a}, {factor}), kwargs = {{}})
#   return %{b}
triton_per_fused__softmax_0 = async_compile.triton('triton_per_fused__softmax_0', '''''')
"""


def softmax(a: str = "exp", b: str = "mul", users: int = 1, factor: str = "2") -> GeneratedFrom:
    said = comments_in_text(SOFTMAX.format(a=a, b=b, users=users, factor=factor))["triton_per_fused__softmax_0"]
    assert said.made_from is not None
    return said.made_from


def test_what_a_kernel_was_made_from() -> None:
    """Other numbers of values, which all of a graph decides, are the same part; another constant is none."""
    found = softmax()
    assert (found.calls, found.operators) == (("softmax",), ("aten.exp", "aten.mul"))
    assert found.torch == torch_version().partition("+")[0]
    assert softmax("exp_7", "mul_3", users=2) == found
    assert softmax(factor="3").graph != found.graph
    assert softmax("mul", "exp") == found


def test_a_module_without_graphs_has_no_hash() -> None:
    found = comments_in_text(MODULE)["triton_red_fused_2"].made_from
    assert found is not None
    assert (found.calls, found.operators, found.graph) == ((), (), "")


def test_the_module_that_launches_is_found(tmp_path: Path) -> None:
    path = tmp_path / "generated.py"
    path.write_text(MODULE)
    tuner = SimpleNamespace()
    code = compile("def call(ask):\n    return ask()\n", str(path), "exec").co_consts[0]
    call = FunctionType(code, {"triton_red_fused_2": tuner, "triton_tem_fused_1": object()})
    assert call(lambda: comment_of_launch(tuner, "triton_red_fused_2").origins) == ("prims.prepare_softmax_online",)
    assert call(lambda: comment_of_launch(tuner, "triton_tem_fused_1").origins) == ()  # another tuner's name


def test_a_module_that_is_gone_says_nothing(tmp_path: Path) -> None:
    tuner = SimpleNamespace()
    code = compile("def call(ask):\n    return ask()\n", str(tmp_path / "gone.py"), "exec").co_consts[0]
    assert FunctionType(code, {"kernel": tuner})(lambda: comment_of_launch(tuner, "kernel").origins) == ()


def test_a_module_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "generated.py"
    path.write_text(MODULE)
    tuner = SimpleNamespace()
    code = compile("def call(ask):\n    return ask()\n", str(path), "exec").co_consts[0]
    call = FunctionType(code, {"triton_red_fused_2": tuner})
    for _ in range(2):
        assert call(lambda: comment_of_launch(tuner, "triton_red_fused_2").origins) == ("prims.prepare_softmax_online",)
        path.unlink(missing_ok=True)
