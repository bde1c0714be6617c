"""A replay kept as a trace (``replay -o FILE``): the same calls and launches, with the replay's memory.

``zluda diff RECORD FILE`` and ``zluda diff FILE OTHER`` then compare it with the record, or with a replay on
another device.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from zluda.diff.results import LaunchResult
from zluda.errors import TraceError
from zluda.replay.memory import Ranges, ReplayMemory
from zluda.tracefile import Call, Direction, Launch, Signature, Trace, TraceWriter
from zluda.tracefile.arguments import ArgumentLayout


class ReplayWriter:
    """Writes one replay; a context manager."""

    def __init__(self, path: str | Path, trace: Trace, meta: dict[str, Any]) -> None:
        if Path(path).exists() and Path(path).samefile(trace.path):
            raise TraceError("the replay would overwrite the trace it replays", file=str(path))
        self._trace = trace
        self._writer = TraceWriter.create(path, {**trace.meta, "replay_of": str(trace.path), **meta})
        self._signatures = {signature.function: signature for signature in trace.signatures.values()}
        self._layouts = {name: ArgumentLayout(s.parameters) for name, s in self._signatures.items()}
        self._delivered: dict[str, bytes] = {}
        self._modules = self._copy_modules()
        self._functions = self._copy_functions()
        self._allocations = self._copy_allocations()

    def _copy_modules(self) -> dict[int, int]:
        ids: dict[int, int] = {}
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
        return ids

    def _copy_functions(self) -> dict[int, int]:
        return {
            function.id: self._writer.add_function(
                function.first_call,
                function.handle,
                function.name,
                module=None if function.module is None else self._modules[function.module],
                layout=function.layout,
            )
            for function in self._trace.functions
        }

    def _copy_allocations(self) -> dict[int, int]:
        ids: dict[int, int] = {}
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
        return ids

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
    ) -> None:
        """Write a call with what it ``changed``, as the replay's memory has it now."""
        self._write_row(call)
        if launch is not None:
            ran = result is not None and result.seconds is not None
            self._write_launch(launch, captured=ran)
            if not ran:
                self._writer.add_gap(call.sequence, "not replayed", result.reason if result else "")
        for key, spans in changed.items():
            one = memory.live.get(key)
            for start, stop in spans if one is not None else ():
                assert one is not None
                data = bytes(memory.read(one, start, stop - start))
                self._writer.add_page(call.sequence, self._allocations[key], start, data)

    def _write_row(self, call: Call) -> None:
        signature = self._signatures[call.function]
        number = self._writer.signature(call.function, signature.parameters)
        before, after = _as_bytes(signature, call.pointees_before), _as_bytes(signature, call.pointees)
        blob = self._layouts[call.function].encode(
            [call.arguments[parameter.name] for parameter in signature.parameters],
            {**after, **before},
            after,
        )
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
            name = signature.parameters[payload.parameter].name
            data = payload.data
            if payload.direction is Direction.OUT and name in self._delivered:
                data = self._delivered[name]
            self._writer.add_payload(
                call.sequence, payload.parameter, payload.direction, data, offset=payload.offset
            )
        self._delivered.clear()

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
            launch.call, shape, launch.parameters, stream=launch.stream, captured=captured
        )

    def close(self) -> None:
        self._writer.close()

    def __enter__(self) -> ReplayWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _as_bytes(signature: Signature, pointees: dict[str, int | bytes]) -> dict[str, bytes]:
    sizes = {parameter.name: parameter.pointee_size for parameter in signature.parameters}
    return {
        name: value.to_bytes(sizes[name], "little") if isinstance(value, int) else value
        for name, value in pointees.items()
    }
