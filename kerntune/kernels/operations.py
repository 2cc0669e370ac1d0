"""TTIR operations by their use of an address (TritonOps.td of Triton 3.6 to 3.9)."""

from __future__ import annotations

WRITERS = frozenset(
    {
        "tt.store",
        "tt.atomic_store",
        "tt.atomic_rmw",
        "tt.atomic_cas",
        "tt.descriptor_store",
        "tt.descriptor_scatter",
        "tt.descriptor_reduce",
    }
)
READERS = frozenset(
    {
        "tt.load",
        "tt.atomic_load",
        "tt.atomic_poll",
        "tt.atomic_rmw",
        "tt.atomic_cas",
        "tt.descriptor_load",
        "tt.descriptor_gather",
        "tt.descriptor_reduce",
    }
)
PURE_READERS = READERS - WRITERS
ATOMICS = frozenset({"tt.atomic_rmw", "tt.atomic_cas", "tt.descriptor_reduce"})
"""Operations on memory; the address is operand 0 in all of them (TritonOps.td of Triton 3.6 to 3.9)."""

ADDRESS_ONLY = frozenset(
    {
        "tt.addptr",
        "tt.advance",
        "tt.assert",
        "tt.bitcast",
        "tt.broadcast",
        "tt.cat",
        "tt.expand_dims",
        "tt.join",
        "tt.make_tensor_descriptor",
        "tt.make_tensor_ptr",
        "tt.print",
        "tt.reshape",
        "tt.return",
        "tt.splat",
        "tt.split",
        "tt.trans",
        "tt.unsplat",
        "arith.select",
    }
)
"""Operations that compute with addresses and touch no memory. Any other operation on an address makes an access
unknown."""

CONTROL = ("scf.", "cf.", "builtin.", "tt.func", "tt.call")
FROM_MEMORY = "reinterpret_tensor_descriptor"
"""An operation whose operand points to a descriptor, which holds the address (in the dialects of several backends)."""

OUTSIDE_CODE = frozenset({"tt.elementwise_inline_asm", "tt.extern_elementwise"})
