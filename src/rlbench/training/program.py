"""What is compiled here, and how: on a CPU whole loops, on CUDA their bodies, replayed as graphs.

In:      functions of tensors, which draw nothing: all randomness comes in as tensors.
Out:     the same functions, faster.

A program is a function that gets its loops as arguments. On a CPU function and loops become one
compiled program, so that Python is entered once per call. On CUDA the body of a loop is compiled
and recorded once per call as a CUDA graph, whose replays read and write the same memory; a call
has its own memory and its own graph, so that no replay sees what is not there any more.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

Tensors = tuple[Tensor, ...]
Recorder = Callable[[Callable[[], None]], Callable[[], None]]
"""From a step to something that repeats it."""


MOST_PROGRAMS = 10_000
"""How many programs a process may make; PyTorch's own 8 are for shapes that change."""


class Loops(Protocol):
    """The loops that a program may use."""

    def repeat(
        self, unfinished: Callable[..., Tensor], body: Callable[..., Tensors], state: Tensors
    ) -> Tensors:
        """The state after applying the body to it for as long as `unfinished` is true of it."""
        ...

    def scan(
        self, body: Callable[[Tensors, Tensor], tuple[Tensors, Tensors]], state: Tensors, xs: Tensor
    ) -> tuple[Tensors, Tensors]:
        """The state after all of xs [T, ...], one by one; and what the body gave, [T, ...] each."""
        ...


class Inside:
    """Loops as parts of a compiled program."""

    repeat = staticmethod(while_loop)
    scan = staticmethod(scan)


class Replayed:
    """Loops in Python over a compiled body that is recorded once per call."""

    def __init__(self, record: Recorder) -> None:
        self._record = record

    def repeat(
        self, unfinished: Callable[..., Tensor], body: Callable[..., Tensors], state: Tensors
    ) -> Tensors:
        """See `Loops.repeat`."""
        held = tuple(part.clone() for part in state)
        once = compiled(body, state[0].device)

        def step() -> None:
            _copy(once(*held), held)

        replay = self._record(step)
        _copy(state, held)  # recording may have taken steps
        while unfinished(*held):
            replay()
        return held

    def scan(
        self, body: Callable[[Tensors, Tensor], tuple[Tensors, Tensors]], state: Tensors, xs: Tensor
    ) -> tuple[Tensors, Tensors]:
        """See `Loops.scan`."""
        held = tuple(part.clone() for part in state)
        once = compiled(body, state[0].device)
        x = xs[0].clone()
        given = tuple(part.clone() for part in once(held, x)[1])
        rows = tuple(part.new_empty(len(xs), *part.shape) for part in given)

        def step() -> None:
            following, gained = once(held, x)
            _copy(following, held)
            _copy(gained, given)

        replay = self._record(step)
        _copy(state, held)
        for t, each in enumerate(xs):
            x.copy_(each)
            replay()
            _copy(given, tuple(part[t] for part in rows))
        return held, rows


def make_program(
    function: Callable[..., Any], device: torch.device, record: Recorder | None = None
) -> Callable[..., Any]:
    """The function, whose first argument are its loops, as one program for the first call's shapes.

    Args:
        function: what to compute.
        device: of its tensors.
        record: makes replays; by default CUDA graphs on CUDA, and none on a CPU.
    """
    if record is None and device.type == "cuda":
        record = recorded
    if record is not None:
        return partial(function, Replayed(record))
    return compiled(partial(function, Inside), device)


def compiled(function: Callable[..., Any], device: torch.device) -> Callable[..., Any]:
    """The function as one program for the shapes of its first call."""
    import torch._dynamo.config as limits
    from torch._inductor.compile_fx import compile_fx
    from torch._inductor.decomposition import select_decomp_table

    # PyTorch counts programs of one function, as those of repeats in one process are.
    limits.recompile_limit = limits.accumulated_recompile_limit = MOST_PROGRAMS
    backend = partial(
        compile_fx,
        config_patches={"cpp_wrapper": device.type == "cpu"},
        decompositions=select_decomp_table() | DECOMPOSITIONS,
    )
    return torch.compile(function, backend=backend, fullgraph=True, dynamic=False)


def recorded(step: Callable[[], None]) -> Callable[[], None]:
    """The replay of a step as a CUDA graph; recording takes the step a few times.

    As in PyTorch's notes on CUDA graphs: warmed up on a stream of its own, then captured.
    """
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def _copy(values: Tensors, places: Tensors) -> None:
    for place, value in zip(places, values, strict=True):
        place.copy_(value)


def tanh_by_exp(x: Tensor) -> Tensor:
    """tanh(x) = 1 - 2 / (exp(2 x) + 1), to 2e-7: exp is vectorised where tanh is not."""
    return 1 - 2 / (torch.exp(2 * x) + 1)


def vector_product(a: Tensor, b: Tensor) -> Any:
    """A B, if one of them is a vector, as a sum that joins what is before and after it."""
    if 1 not in {*a.shape, *b.shape}:
        return NotImplemented
    return (a.unsqueeze(2) * b).sum(1)


def affine(c: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Any:
    """A B + c, where c joins what is after it; a sum, unlike this, would be put together again."""
    if (beta, alpha) != (1, 1):
        return NotImplemented
    return a @ b - -c


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.tanh.default: tanh_by_exp,
    torch.ops.aten.mm.default: vector_product,
    torch.ops.aten.addmm.default: affine,
}
"""What becomes part of the code around it, where PyTorch would call a routine."""
