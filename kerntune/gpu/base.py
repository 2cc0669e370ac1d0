"""What kerntune asks of a GPU and of its tensors: protocols, one real and one scripted implementation each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING, Any, Protocol

from kerntune.base.device import DeviceSpec, Environment
from kerntune.base.recording import Binary, Param
from kerntune.gpu.compare import Difference

if TYPE_CHECKING:  # timing workers have no kernels, and no users' code
    from kerntune.base.users_line import UsersLine
    from kerntune.kernels.access import Access


class Buffer(Protocol):
    """A piece of device memory that is freed when the object goes."""

    address: int
    nbytes: int


class GpuEvent(Protocol):
    """A point in the device's time."""


class GpuGraph(Protocol):
    """A recorded sequence of device work that is enqueued with one call."""

    def replay(self) -> None:
        """Enqueue the whole sequence once."""


class Function(Protocol):
    """A loaded kernel."""

    @property
    def binary(self) -> Binary:
        """What was loaded."""

    @property
    def registers(self) -> int:
        """Registers a thread, as the driver says."""


def tensors_in(*groups: Iterable[Any]) -> Iterator[Any]:
    """The tensors in groups of an operator's arguments or results, in tuples and lists of any depth.

    They are recognised by the name that torch gives their storage, so nothing here imports torch.
    """
    for group in groups:
        for value in group:
            if hasattr(value, "untyped_storage"):
                yield value
            elif isinstance(value, (list, tuple)):
                yield from tensors_in(value)


def binary_of_ptx(symbol: str, num_warps: int) -> Binary:
    """What :meth:`Executor.load` has to know of a kernel given as PTX from sm_70 on, without shared memory."""
    return Binary(
        kind="cubin", arch="sm_70", symbol=symbol, sha256="", ttir_sha256="", code="", text="", triton="", assembler="",
        options={}, constexprs={}, num_warps=num_warps,
    )  # fmt: skip


class Executor(Protocol):
    """One device that executes. Work is enqueued in order; only reads and :meth:`synchronize` wait for it."""

    @property
    def spec(self) -> DeviceSpec:
        """What this device is."""

    def lock(self, patience_s: float = ...) -> AbstractContextManager[None]:
        """Held for a whole comparison: one measuring process per device. :class:`MeasurementError` if another one
        doesn't end within ``patience_s`` (default: an hour)."""

    def lock_shared(self) -> AbstractContextManager[None]:
        """Held while anything of ours runs that isn't timed: beside others that do the same, and while no process
        measures. A thread that holds it must let go before it asks for :meth:`lock`. :class:`MeasurementError` as
        there."""

    def lock_suspendable(self) -> AbstractContextManager[None]:
        """As :meth:`lock_shared`, for code that may ask for :meth:`lock` in between: that lets go of this first, and
        takes it again at its end."""

    def free_bytes(self) -> int:
        """Device memory that could be allocated now."""

    def allocate(self, nbytes: int) -> Buffer:
        """At least 256-byte aligned memory, contents undefined."""

    def allocate_host(self, nbytes: int) -> Buffer:
        """Pinned memory of the host, to copy to and from; a launch must not be given its address."""

    def part(self, buffer: Buffer, offset: int, nbytes: int) -> Buffer:
        """A piece of a device buffer as it is now, to copy or compare; the buffer is kept alive."""

    def carve(self, buffer: Buffer, sizes: Sequence[int]) -> list[Buffer]:
        """Divide a buffer of our own into pieces of these sizes, to be used as buffers from now on; each keeps the
        whole alive."""

    def share(self, buffer: Buffer) -> bytes:
        """A handle by which another process can open a buffer of our own: :meth:`shared` there. :class:`BackendError`
        where that can't be."""

    def shared(self, handle: bytes, nbytes: int) -> AbstractContextManager[Buffer]:
        """Another process's buffer, mapped meanwhile."""

    def copy(self, target: Buffer, source: Buffer) -> None:
        """Enqueue a copy of ``source.nbytes`` bytes."""

    def compare(self, expected: Buffer, actual: Buffer, dtype: str, tolerance: float) -> Difference | None:
        """How two buffers differ, after all enqueued work (:func:`kerntune.gpu.compare.compare_bytes`).

        ``expected`` may be the host's.
        """

    def read(self, buffer: Buffer, limit: int | None = None) -> bytes:
        """The buffer's bytes, or the first ``limit`` of them, after all enqueued work."""

    def write(self, buffer: Buffer, data: bytes, offset: int = 0) -> None:
        """Fill the buffer with ``data`` from ``offset`` on. BackendError where that is longer than the buffer."""

    def repeat(self, buffer: Buffer, data: bytes) -> None:
        """Fill the buffer with ``data`` over and over; the last one may be cut off."""

    def fill(self, buffer: Buffer, byte: int) -> None:
        """Enqueue a fill with one byte value."""

    def load(self, binary: Binary, data: bytes) -> Function:
        """Load a kernel. OutOfResourcesError where this device can't launch it; BackendError for the rest."""

    def unload(self, function: Function) -> None:
        """Free a loaded kernel."""

    def prepare(
        self, function: Function, grid: tuple[int, int, int], params: Sequence[Param], addresses: Sequence[int | None]
    ) -> Callable[[], None]:
        """A call that enqueues one launch. ``addresses`` has, per parameter, its pointer, or None for a scalar."""

    def event(self) -> GpuEvent:
        """Enqueue an event now."""

    def reached(self, event: GpuEvent) -> bool:
        """Whether the device has come to an event yet; doesn't wait. One that it comes to before everything up to a
        later event is enqueued had nothing to do meanwhile: the time between the two may be the host's."""

    def elapsed_ns(self, start: GpuEvent, end: GpuEvent) -> float:
        """Nanoseconds between two events, after waiting for the later one."""

    def graph(self, work: Callable[[], None]) -> GpuGraph:
        """Record what ``work`` enqueues, without running it."""

    def flush_l2(self) -> None:
        """Enqueue a write that is larger than the L2 cache."""

    def reset_persisting_l2(self) -> None:
        """After all enqueued work, make lines that launches have marked to stay in the L2 cache like all others: the
        next flush reaches them."""

    def rest(self, seconds: float = 0.5) -> None:
        """Idle, by default until clocks and power are as they are before hard work."""

    def synchronize(self) -> None:
        """Wait for all enqueued work."""

    def idle(self, limit_s: float) -> bool:
        """Whether all work of this process on the device, of any stream, has ended, or does so within ``limit_s``. A
        collective that waits for another process may never end."""


class Gpu(Executor, Protocol):
    """An executor that sees the user's tensors and calls: the one in the user's own process."""

    def environment(self) -> Environment:
        """Versions, clocks and throttle reasons as they are now."""

    def first_launch_arguments(self) -> tuple[str, ...]:
        """The words by which a process opens this device for first launches; none where none is wanted.

        :mod:`kerntune.timing.worker.first_launch_server` reads them. :class:`BackendError` says why none can be had."""

    def unprotected(self) -> list[str]:
        """What the device's setting takes away of the protection between processes, a sentence each (MPS,
        exclusive-process mode: :mod:`kerntune.gpu.host_gpus`)."""

    def reaches(self, address: int) -> bool:
        """Whether a number is an address of memory that this process can use, the device's or the host's."""

    def entered(self) -> AbstractContextManager[None]:
        """This device is torch's current one meanwhile, as all work but :meth:`lock`, :meth:`lock_shared`,
        :meth:`free_bytes` and :meth:`synchronize` needs it."""

    def borrow(self, tensor: Any) -> Buffer:
        """The memory under a user's tensor, whole storage, not copied; it is kept alive."""

    def call_graph(self, *calls: Callable[[], object]) -> GpuGraph:
        """Record users' calls, one after the other, which may allocate: what one of several allocates is no memory of
        another's. RuntimeError where they can't be recorded."""


class OperatorListener(Protocol):
    """What notes the operators of torch that run on a device's tensors."""

    def begin(self) -> int:
        """Called before one runs; what it gives is given to :meth:`observe`."""

    def observe(
        self,
        func: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        result: Any,
        begun: int | None,
        alike: object | None = None,
    ) -> None:
        """Called after it has run. ``func`` is torch's ``OpOverload``; ``begun`` is None of one that can't launch
        kernels. ``alike`` is the same object for calls of one operator on tensors of the same layouts and devices,
        where that is known."""


class Tensors(Protocol):
    """How the tensors of a run are looked at: real ones, or stand-ins without memory."""

    def is_tensor(self, value: Any) -> bool:
        """Whether ``value`` is a tensor on the device."""

    def storage_address(self, tensor: Any) -> int:
        """Address of the tensor's storage: equal for views of one storage."""

    def address(self, tensor: Any) -> int:
        """Address of the tensor's first element."""

    def specializing(self) -> AbstractContextManager[None]:
        """Held while Triton looks at arguments, so that pointers have their alignment."""

    def watching(self, listener: OperatorListener) -> AbstractContextManager[None]:
        """Held while a call is captured: ``listener`` notes each operator of torch that runs, in compiled graphs
        too, on this thread and on those that Python starts meanwhile. What ``torch.compile`` makes of the call stays
        the same."""

    def compiling(self, begin: Callable[[ExitStack], None]) -> AbstractContextManager[Sequence[str]]:
        """Held while a call is captured that may call functions compiled by ``torch.compile``: ``begin`` is called
        once, before the first of them runs, with a stack that closes at the end. What is generated by a guess
        meanwhile, since only a time decides it."""

    def launched(self, pointers: Sequence[Any], access: Callable[[], Access]) -> None:
        """A kernel was launched on ``pointers`` (:func:`kerntune.kernels.specialize.pointer_arguments`) by a way that
        this backend doesn't see; ``access()`` is what it does with them."""

    def take_unanswered(self) -> list[tuple[UsersLine, str]]:
        """Where nothing runs: the users' lines that have asked for values that only a GPU has since the last call of
        this, and the reasons why they got none."""

    def supply(self, tensor: Any, values: Any) -> None:
        """Where nothing runs: a launch has left ``values`` in ``tensor``. :class:`UsageError` says why it can't
        have."""


class Backend(Protocol):
    """Where a run takes place: a real GPU, none (stand-ins), or a scripted one."""

    @property
    def name(self) -> str:
        """``cuda``, ``static`` or ``fake``."""

    @property
    def spec(self) -> DeviceSpec:
        """The device, or the usual one of the target that is compiled for."""

    @property
    def tensors(self) -> Tensors:
        """How to look at this run's tensors."""

    @property
    def gpu(self) -> Gpu | None:
        """None: launches are captured and compiled, nothing runs."""

    @property
    def torch_device(self) -> str:
        """What users' tests create tensors on."""

    @property
    def ordinal(self) -> int:
        """The device's number among those that torch sees."""

    @property
    def count(self) -> int:
        """How many devices there are."""

    def current(self) -> int:
        """The number of the calling thread's current device, on which Triton launches."""

    def on(self, ordinal: int) -> Backend:
        """The same kind of run on another device of this process; itself for its own number."""

    def activate(self) -> AbstractContextManager[None]:
        """Held for the whole session."""

    def end_reason(self, error: BaseException) -> str | None:
        """Why a test body can't go on with stand-ins; None for a genuine failure."""
