"""A replay kept as a trace (``replay -o FILE``): the same calls and launches, with the replay's memory.

``zluda diff RECORD FILE`` and ``zluda diff FILE OTHER`` then compare it with the record, or with a replay on
another device.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from zluda.diff.results import LaunchResult
from zluda.errors import TraceError
from zluda.replay.memory import Ranges, ReplayMemory
from zluda.tracefile import NOT_REPLAYED, Call, Direction, Launch, Payload, Signature, Trace, TraceWriter
from zluda.tracefile.arguments import ArgumentLayout


class _Ids(dict[int, int]):
    """The record's ids of one table → the replay's."""

    def __init__(self, what: str, trace: Trace) -> None:
        super().__init__()
        self._what, self._file = what, str(trace.path)

    def __missing__(self, key: int) -> int:
        raise TraceError(f"damaged: it refers to {self._what} {key}, which is not there", file=self._file)


class ReplayWriter:
    """Writes one replay; a context manager."""

    def __init__(self, path: str | Path, trace: Trace, meta: dict[str, Any]) -> None:
        self._trace = trace
        self._writer = TraceWriter.create(path, {**trace.meta, "replay_of": str(trace.path), **meta})
        self._signatures = {
            _key(s.function, (p.name for p in s.parameters)): s for s in trace.signatures.values()
        }
        self._layouts = {key: ArgumentLayout(s.parameters) for key, s in self._signatures.items()}
        self._delivered: dict[str, bytes] = {}
        self._modules = _Ids("module", trace)
        self._functions = _Ids("function", trace)
        self._allocations = _Ids("allocation", trace)
        self._copy_modules()
        self._copy_functions()
        self._copy_allocations()

    def _copy_modules(self) -> None:
        ids = self._modules
        for module in self._trace.module_list:
            head, *others = module.images or (None,)
            ids[module.id] = self._writer.add_module(
                module.load_call,
                module.kind,
                module.handle,
                origin=module.origin,
                image=self._trace.image(head) if head is not None else b"",
                architecture=head.architecture if head is not None else "",
            )
            for image in others:
                if image is not None:
                    self._writer.add_image(
                        ids[module.id],
                        image.kind,
                        self._trace.image(image),
                        architecture=image.architecture,
                        origin=image.origin,
                    )
            if module.unload_call is not None:
                self._writer.unload_module(ids[module.id], module.unload_call)

    def _copy_functions(self) -> None:
        for function in self._trace.functions:
            self._functions[function.id] = self._writer.add_function(
                function.first_call,
                function.handle,
                function.name,
                module=None if function.module is None else self._modules[function.module],
                layout=function.layout,
            )

    def _copy_allocations(self) -> None:
        ids = self._allocations
        for one in self._trace.allocations:
            ids[one.id] = self._writer.add_allocation(
                one.born,
                one.base,
                one.size,
                one.kind,
                name=one.name,
                module=None if one.module is None else self._modules[one.module],
            )
            if one.died is not None:
                self._writer.close_allocation(ids[one.id], one.died)

    def delivered(self, parameter: str, data: bytes) -> None:
        """What the copy under way delivered here; written with its call."""
        self._delivered[parameter] = data

    def write_call(
        self,
        call: Call,
        launch: Launch | None,
        memory: ReplayMemory,
        changed: Ranges,
        result: LaunchResult | None,
        *,
        node: bool = False,
    ) -> None:
        """Write a call with what it ``changed``, as the replay's memory has it now.

        Of a ``node`` of a graph it is not known yet whether it was replayed.
        """
        self._write_row(call)
        if launch is not None:
            ran = result is not None and result.seconds is not None
            self._write_launch(launch, captured=ran)
            if not ran and not node and launch.left_out is None:
                self._writer.add_gap(call.sequence, NOT_REPLAYED, result.reason if result else "")
        self._write_pages(call.sequence, memory, changed, found=False)

    def write_found(self, call: int, memory: ReplayMemory, found: Ranges) -> None:
        """Write what was found between ``call`` and the next."""
        self._write_pages(call, memory, found, found=True)

    def _write_pages(self, call: int, memory: ReplayMemory, ranges: Ranges, *, found: bool) -> None:
        for key, spans in ranges.items():
            one = memory.live.get(key)
            for start, stop in spans if one is not None else ():
                assert one is not None
                data = bytes(memory.read(one, start, stop - start))
                self._writer.add_page(call, self._allocations[key], start, data, found=found)

    def write_unplayed(self, results: Iterable[LaunchResult]) -> None:
        """Of the results of a graph's kernels, those of kernels that were not replayed."""
        for result in results:
            if result.seconds is None:
                self._writer.add_gap(result.call, NOT_REPLAYED, result.reason)

    def _write_row(self, call: Call) -> None:
        key = _key(call.function, call.arguments)
        signature = self._signatures[key]
        number = self._writer.signature(call.function, signature.parameters)
        before, after = _as_bytes(signature, call.pointees_before), _as_bytes(signature, call.pointees)
        blob = self._layouts[key].encode(list(call.arguments.values()), {**after, **before}, after)
        row = (
            call.sequence,
            call.thread,
            call.parent,
            number,
            call.start_ns,
            call.end_ns,
            call.result,
            blob,
        )
        self._writer.add_calls([row])
        for payload in self._trace.payloads(call.sequence):
            name = self._parameter_name(signature, payload)
            data = payload.data
            if payload.direction is Direction.OUT and name in self._delivered:
                data = self._delivered[name]
            self._writer.add_payload(
                call.sequence, payload.parameter, payload.direction, data, offset=payload.offset
            )
        self._delivered.clear()

    def _parameter_name(self, signature: Signature, payload: Payload) -> str:
        if payload.parameter >= len(signature.parameters):
            raise TraceError(
                f"damaged: data of parameter {payload.parameter} of {signature.function}, which has none",
                file=str(self._trace.path),
                call=payload.call,
            )
        return signature.parameters[payload.parameter].name

    def _write_launch(self, launch: Launch, *, captured: bool) -> None:
        shape = self._writer.shape(
            self._functions[launch.function],
            launch.grid,
            launch.block,
            cluster=launch.cluster,
            shared_bytes=launch.shared_bytes,
            attributes=launch.attributes,
            fidelity=launch.fidelity,
        )
        self._writer.add_launch(
            launch.call,
            shape,
            launch.parameters,
            stream=launch.stream,
            captured=captured,
            left_out=launch.left_out,
        )

    def close(self) -> None:
        self._writer.close()

    def __enter__(self) -> ReplayWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _key(function: str, names: Iterable[str]) -> tuple[str, ...]:
    """A signature by its function and the names of its parameters."""
    return (function, *names)


def _as_bytes(signature: Signature, pointees: dict[str, int | bytes]) -> dict[str, bytes]:
    sizes = {parameter.name: parameter.pointee_size for parameter in signature.parameters}
    return {
        name: value.to_bytes(sizes[name], "little") if isinstance(value, int) else value
        for name, value in pointees.items()
    }
