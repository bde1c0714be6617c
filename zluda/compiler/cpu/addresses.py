"""Addresses on the CPU: windows, symbols, pointers, alignment.

A generic address is a host address. The shared and local spaces are windows: ``host - window base``. In a
cluster of several blocks the shared window is the cluster's, in which a block's own shared memory begins at
its rank times ``SHARED_STRIDE``, and an access of ``shared`` heeds only the address's bits below. A kernel's
parameters and module variables are at host addresses; local variables, a call's parameters and a function's
parameters lie on the stack, one slot a lane side by side, all in the local window.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zluda.compiler.analysis.shapes import constant_shape, lowest_bit
from zluda.compiler.clusters import CLUSTER
from zluda.compiler.cpu.bounds import check_bounds
from zluda.compiler.cpu.context import SHARED_STRIDE
from zluda.compiler.cpu.special import context_field, context_pointer, warp_number
from zluda.compiler.ir import Value, constant
from zluda.compiler.lanes import narrow, uniform, varying
from zluda.compiler.layout import FUNCTIONS, parameter_layout, round_up
from zluda.compiler.stops import FAULT_CODES, sized
from zluda.compiler.target import UNIFORM, WARP, ZEROS, Geometry, Lanes, Shape
from zluda.errors import UnsupportedError
from zluda.ptx.module import Variable

if TYPE_CHECKING:
    from zluda.compiler.codegen import FunctionCodegen

STACK_ALIGN = 64
_PARAMETER_ALIGN = 16
_OWN = ("local", "const", "param")  # what no other thread writes
_RANK_AT = SHARED_STRIDE.bit_length() - 1


def lane_stride(variable: Variable) -> int:
    """Bytes from one lane's copy of a stack variable to the next's."""
    return max(round_up(variable.size, max(variable.align, 1)), 1)


class AddressOps:
    """The address part of the CPU's TargetOps."""

    geometry: Geometry

    # --- windows and symbols ---------------------------------------------------------------------------

    def window(self, f: FunctionCodegen, space: str) -> Value:
        """The host address at which a space's window begins: 0 but for shared and local memory."""
        field = {"shared": "shared", CLUSTER: "shared", "local": "stack_low"}.get(space)
        return context_field(f, field, "i64") if field else constant("i64", 0)

    def in_window(self, f: FunctionCodegen, space: str, address: Lanes) -> Lanes:
        """``isspacep`` (PTX ISA 9.7.9.17); kernel parameters are part of the global window."""
        b = f.b
        parts = []
        for part in (
            f.vectors(address) if address.shape.varying or any(address.shape.pattern or ()) else address.parts
        ):
            inside = {s: self._inside(f, s, part) for s in ("shared", "local", "const", "param")}
            inside[CLUSTER] = self._in_cluster(f, part) if f.unit.clustered else inside["shared"]
            inside["global"] = b.not_(b.or_(b.or_(inside[CLUSTER], inside["local"]), inside["const"]))
            parts.append(inside[space])
        return varying(parts, self.geometry, b) if len(parts) > 1 else uniform(parts[0])

    def _inside(self, f: FunctionCodegen, space: str, address: Value) -> Value:
        b = f.b
        if space == "const":
            found: Value = constant("i1", 0)
            for variable in f.unit.module.variables.values():
                if variable.space == "const" and variable.size:
                    start = self._module_symbol(f, variable.name)
                    found = b.or_(b.icmp("ult", b.sub(address, start), variable.size), found)
            return found
        size = {
            "shared": lambda: b.zext(context_field(f, "shared_bytes", "i32"), "i64"),
            "local": lambda: b.sub(
                context_field(f, "stack_high", "i64"), context_field(f, "stack_low", "i64")
            ),
            "param": lambda: b.zext(context_field(f, "param_bytes", "i32"), "i64"),
        }[space]()
        field = {"param": "params", "shared": "own_shared", "local": "stack_low"}[space]
        return b.icmp("ult", b.sub(address, context_field(f, field, "i64")), size)

    def _in_cluster(self, f: FunctionCodegen, address: Value) -> Value:
        """Whether an address is in the shared memory of a block of the cluster."""
        b = f.b
        place = b.sub(address, self.window(f, "shared"))
        size = b.zext(context_field(f, "shared_bytes", "i32"), "i64")
        in_block = b.icmp("ult", b.and_(place, SHARED_STRIDE - 1), size)
        return b.and_(b.icmp("ult", place, f.unit.together.blocks * SHARED_STRIDE), in_block)

    def block_shift(self, f: FunctionCodegen) -> Value:
        """See :class:`~zluda.compiler.target.TargetOps`."""
        return constant("i32", _RANK_AT)

    def symbol_shape(self, f: FunctionCodegen, name: str) -> Shape:
        """The shape of :meth:`symbol`."""
        variable = stack_variable(f, name)
        if variable is not None:
            stride = lane_stride(variable)
            return Shape(tuple(lane * stride for lane in range(WARP)), 1, STACK_ALIGN)
        if name in f.unit.shared.offsets:
            offset = f.unit.shared.offsets[name]
            if f.unit.clustered:
                return Shape(ZEROS, 1, lowest_bit(offset | SHARED_STRIDE))
            return constant_shape(offset)
        if name in _parameter_offsets(f):
            return Shape(ZEROS, 1, lowest_bit(_parameter_offsets(f)[name] | _PARAMETER_ALIGN))
        module_variable = f.unit.module.variables.get(name)
        if module_variable is not None:
            return Shape(ZEROS, 1, max(module_variable.align, 1))
        return UNIFORM

    def symbol(self, f: FunctionCodegen, name: str) -> Lanes:
        """The address of a variable, parameter or function in its own space. Raises UnsupportedError."""
        shape = self.symbol_shape(f, name)
        if stack_variable(f, name) is not None:
            return Lanes(shape, (self._stack_address(f, name),))
        if shape.constant is not None:
            return Lanes(shape, (constant("i32", shape.constant),))
        if name in f.unit.shared.offsets:
            rank = context_field(f, "cluster_rank", "i32")
            return Lanes(shape, (f.b.add(f.b.shl(rank, _RANK_AT), f.unit.shared.offsets[name]),))
        offsets = _parameter_offsets(f)
        if name in offsets:
            return Lanes(shape, (f.b.add(context_field(f, "params", "i64"), offsets[name]),))
        if name in f.function.variables or name in f.unit.module.variables:
            return Lanes(shape, (self._module_symbol(f, name),))
        if name in f.unit.module.function_names:
            return uniform(f.b.add(self.first_function(f), f.unit.function_offset(name)))
        raise UnsupportedError(f"address of {name}")

    def first_function(self, f: FunctionCodegen) -> Value:
        """See :class:`~zluda.compiler.target.TargetOps`."""
        return self._module_symbol(f, FUNCTIONS)

    def _module_symbol(self, f: FunctionCodegen, name: str) -> Value:
        """A symbol's address, from the table the device fills in; loaded at the function's entry."""
        table = context_field(f, "symbols", "i64")
        index = f.unit.symbol_index(name)

        def lines() -> list[str]:
            return [
                f"%symbol.{index}.a = add i64 {table.ref}, {8 * index}",
                f"%symbol.{index}.p = inttoptr i64 %symbol.{index}.a to ptr",
                f"%symbol.{index} = load i64, ptr %symbol.{index}.p, align 8",
            ]

        return f.at_entry(f"symbol.{index}", "i64", lines)

    def _stack_address(self, f: FunctionCodegen, name: str) -> Value:
        """The first lane's copy of a local variable or parameter; local addresses are in their window."""
        pointer = f.stack_variables.get(name)
        if pointer is None:
            variable = stack_variable(f, name)
            assert variable is not None
            pointer = f.b.alloca("i8", count=self.stack_bytes(variable))
            f.stack_variables[name] = pointer
        return f.b.sub(f.b.cast("ptrtoint", pointer, "i64"), self.window(f, "local"))

    def stack_bytes(self, variable: Variable) -> int:
        """What a stack variable takes: a copy a lane."""
        return WARP * lane_stride(variable)

    # --- pointers --------------------------------------------------------------------------------------

    def pointer(self, f: FunctionCodegen, space: str, address: Value, offset: int) -> Value:
        """Host pointers, one a lane of ``address``, ``offset`` bytes further."""
        b = f.b
        if space in ("shared", CLUSTER, "local"):
            own = space == "shared" and f.unit.clustered
            window = context_field(f, "own_shared", "i64") if own else self.window(f, space)
            start = b.cast("inttoptr", window, "ptr")
            inside = b.resize(address, "i64" if space == "local" else "i32")
            if own:
                inside = b.and_(inside, SHARED_STRIDE - 1)
            if inside.lanes == 1:
                inside = b.zext(inside, "i64")
            pointer = b.gep(start, inside)
        else:
            pointer = b.cast("inttoptr", b.resize(address, "i64"), "ptr")
        return b.gep(pointer, offset) if offset else pointer

    def check_access(self, f: FunctionCodegen, space: str, address: Lanes, offset: int, size: int) -> None:
        """Stop the launch when an active lane's access is misaligned or out of range. Before it, in a seeded
        schedule, others may go on.
        """
        if f.unit.scheduled and space not in _OWN:
            f.unit.uses_fibers = True
            f.b.call("zluda_turn", [context_pointer()])
        self.check_alignment(f, space, address, offset, size)
        check_bounds(self, f, space, address, offset, size)

    def check_alignment(self, f: FunctionCodegen, space: str, address: Lanes, offset: int, size: int) -> None:
        """Stop the launch when an active lane's address is not a multiple of the access (PTX ISA 6.4.1.1)."""
        shape, b = address.shape, f.b
        if size <= 1:
            return
        pattern = shape.pattern
        if pattern is not None and all((p + offset) % size == 0 for p in pattern) and shape.align % size == 0:
            return
        checked = (*(p.ref for p in address.parts), pattern, offset % size, size)
        if checked in f.checked:
            return
        f.checked.add(checked)
        parts = [narrow(address, g, b, self.geometry) for g in range(self.geometry.groups)]
        if pattern is not None and shape.bases == 1 and all(p % size == pattern[0] % size for p in pattern):
            parts = [b.add(address.parts[0], pattern[0])]
        bad = [b.icmp("ne", b.and_(b.add(p, offset), size - 1), 0) for p in parts]
        if f.mask is not None and len(parts) == self.geometry.groups > 1:
            bad = [b.and_(x, m) for x, m in zip(bad, f.mask, strict=True)]
        elif len(bad) > 1:
            bad = [b.splat(x, self.geometry.width) for x in bad]
        wrong = b.any(bad[0])
        for x in bad[1:]:
            wrong = b.or_(wrong, b.any(x))
        fault, fine = b.fresh("misaligned"), b.fresh("aligned")
        b.cond_branch(wrong, fault, fine)
        b.label(fault)
        self.report(f, "misaligned", bad, parts, offset, size)
        b.label(fine)

    def report(
        self,
        f: FunctionCodegen,
        kind: str,
        bad: list[Value],
        parts: list[Value],
        offset: int,
        size: int,
    ) -> None:
        """Fault for the first bad lane, giving its thread, address and the bytes of its access."""
        b, width = f.b, self.geometry.width
        if len(bad) == 1:
            lane = b.intrinsic("cttz", f.mask_bits(), False)
            address = parts[0]
        else:
            lane = b.intrinsic("cttz", f.pack_bits(bad), False)
            spot = b.alloca("i64", width, count=len(parts))
            for g, part in enumerate(parts):
                b.store(b.splat(b.resize(part, "i64"), width), b.gep(spot, g * width * 8), align=64)
            address = b.load("i64", b.gep(spot, b.zext(lane, "i64"), "i64"), align=8)
        thread = b.add(b.shl(warp_number(), 5), lane)
        where = b.add(b.resize(address, "i64"), offset)
        code = constant("i32", sized(FAULT_CODES[kind], size))
        b.call("zluda_fault", [context_pointer(), code, thread, where])
        b.unreachable()


def _parameter_offsets(f: FunctionCodegen) -> dict[str, int]:
    """A kernel's parameters in the packed buffer, which the device aligns to 16 bytes."""
    return (
        {s.name: s.offset for s in parameter_layout(f.function.parameters)[0]} if f.function.is_entry else {}
    )


def stack_variable(f: FunctionCodegen, name: str) -> Variable | None:
    """A local variable, a call's parameter, or a function's parameter: what has a copy a lane."""
    variable = f.function.variables.get(name)
    if variable is not None and variable.space in ("local", "param"):
        return variable
    if f.function.is_entry:
        return None
    return next(
        (v for v in (*f.function.parameters, *f.function.returns) if v.name == name and v.space == "param"),
        None,
    )
