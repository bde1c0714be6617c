"""PTX of Dr.Jit, which makes it at run time: python from_drjit.py (with driver.c as libcuda.so.1)."""

import drjit as dr
from drjit.auto import ad as types
from drjit.cuda import PCG32, Bool, Float, Float16, Float64, Int, Texture2f, UInt, UInt64
from drjit.cuda import TensorXf as Tensor

N = 1000


def main() -> None:
    """Evaluate expressions; each becomes a kernel."""
    x, d, u, h = dr.arange(Float, N), dr.arange(Float64, N), dr.arange(UInt, N), dr.arange(Float16, N)
    for v in (x, d, h):
        dr.eval(v * v + 1, dr.fma(v, v, v), dr.sqrt(v), dr.minimum(v, 3), dr.floor(v), dr.abs(-v), v / 3)
    for f in (
        dr.sin,
        dr.cos,
        dr.exp,
        dr.log,
        dr.tan,
        dr.asin,
        dr.atan,
        dr.tanh,
        dr.erf,
        dr.cbrt,
        dr.rsqrt,
        dr.rcp,
    ):
        dr.eval(f(x), f(d))
    dr.eval(
        u // 7, u % 13, u << 3, u >> 2, dr.popcnt(u), dr.lzcnt(u), dr.tzcnt(u), dr.mul_hi(u, u), dr.brev(u)
    )
    dr.eval(
        UInt64(u) * 12345678901,
        Int(x),
        UInt(d),
        Float(u),
        Float16(x),
        Float(h),
        dr.reinterpret_array(UInt, x),
    )
    dr.eval(dr.select(x > 3, x, -x), dr.gather(Float, x, u % 7, u > 4), dr.isnan(x), (x > 3) & (u < 9))
    for op in (dr.ReduceOp.Add, dr.ReduceOp.Min, dr.ReduceOp.Max):
        out = dr.zeros(Float, 16)
        dr.scatter_reduce(op, out, x, u % 16)
        dr.eval(out, dr.sum(x), dr.prod(x), dr.max(x), dr.min(d), dr.cumsum(x), dr.block_reduce(op, x, 10))
    counter, out = dr.zeros(UInt, 1), dr.zeros(Float, N)
    dr.scatter(out, x, dr.scatter_inc(counter, UInt(0), x > 3))
    rng = PCG32(size=N)
    dr.eval(out, rng.next_float32(), rng.next_float64(), rng.next_uint32_bounded(17))
    i, total = UInt(0), Float(0)
    _, total = dr.while_loop(
        (i, total), lambda i, t: i < 10, lambda i, t: (i + 1, t * 0.5 + dr.sin(Float(i) + x))
    )
    dr.eval(total, dr.if_stmt((x,), x > 5, lambda v: dr.exp(v), lambda v: dr.log(v + 1)))
    dr.eval(dr.switch(u % 2, [lambda v: v * 2, lambda v: dr.sqrt(v)], x))
    a = types.Float(x)
    dr.enable_grad(a)
    loss = dr.sum(dr.sin(a) * a)
    dr.backward(loss)
    dr.eval(dr.grad(a))
    texture = Texture2f(Tensor(dr.arange(Float, 64 * 64 * 4), (64, 64, 4)))
    dr.eval(texture.eval([x / N, x / N]), texture.eval_cubic([x / N, x / N]))
    dr.eval(dr.any(Bool(x > 2)), dr.compress(x > 3))
    dr.sync_thread()


if __name__ == "__main__":
    main()
