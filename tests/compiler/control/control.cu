// Calls of every kind as nvcc writes them: nvcc -rdc=true -ptx -arch=compute_80 -O1 control.cu made control.ptx.
#include <cstdarg>
#include <cstdint>

// --- virtual functions ---------------------------------------------------------------------------------

struct Shape {
  int size;
  __device__ Shape(int size) : size(size) {}
  __device__ virtual int area() const = 0;
  __device__ virtual int edges() const { return 4; }
  __device__ virtual ~Shape() {}
};
struct Square : Shape {
  using Shape::Shape;
  __device__ int area() const override { return size * size; }
};
struct Triangle : Shape {
  using Shape::Shape;
  __device__ int area() const override { return size * size / 2; }
  __device__ int edges() const override { return 3; }
};
struct Strip : Square {
  int length;
  __device__ Strip(int size, int length) : Square(size), length(length) {}
  __device__ int area() const override { return Square::area() * length; }
};

extern "C" __global__ void virtual_calls(int *out) {
  int i = threadIdx.x;
  Square square(i);
  Triangle triangle(i + 1);
  Strip strip(i, 3);
  Shape *shapes[3] = {&square, &triangle, &strip};
  const Shape *shape = shapes[i % 3];
  out[i] = shape->area() * 10 + shape->edges();
}

// --- tables of functions ---------------------------------------------------------------------------------

__device__ __noinline__ int add(int a, int b) { return a + b; }
__device__ __noinline__ int subtract(int a, int b) { return a - b; }
__device__ __noinline__ int multiply(int a, int b) { return a * b; }
__device__ __noinline__ int choose(int a, int b) { return a > b ? a : b; }

typedef int (*Operation)(int, int);
__device__ Operation operations[4] = {add, subtract, multiply, choose};

extern "C" __global__ void table_calls(int *out, const int *which) {
  int i = threadIdx.x;
  Operation operation = operations[which[i]];
  out[i] = operation(i, 7) + operations[(which[i] + 1) % 4](i, 3);
}

// --- recursion -------------------------------------------------------------------------------------------

// As deep as its argument, with a value of each level alive across the call.
__device__ __noinline__ int depth(int n, int *visited) {
  atomicAdd(visited, 1);
  if (n == 0) return 1;
  int below = depth(n - 1, visited);
  return (below * 3 + n) % 10007;
}
__device__ bool is_odd(unsigned n);
__device__ __noinline__ bool is_even(unsigned n) { return n == 0 || is_odd(n - 1); }
__device__ __noinline__ bool is_odd(unsigned n) { return n != 0 && is_even(n - 1); }
__device__ __noinline__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

extern "C" __global__ void recursion(int *out, int *visited) {
  int i = threadIdx.x;
  out[i] = depth(100 - i, visited + i) * 4 + is_even(i) * 2 + (fibonacci(i % 10) & 1);
}

// --- structures, by value and back -------------------------------------------------------------------------

struct Body {
  double mass;
  float place[3];
  short kind;
  char name[5];
};

__device__ __noinline__ Body moved(Body body, float by, char letter) {
  for (int k = 0; k < 3; k++) body.place[k] += by * (k + 1);
  body.mass *= 2;
  body.kind -= 1;
  body.name[4] = letter;
  return body;
}

extern "C" __global__ void structures(float *out) {
  int i = threadIdx.x;
  Body body = {i * 1.5, {1.f * i, 2.f * i, 3.f * i}, short(i), {'a', 'b', 'c', 'd', 0}};
  Body after = moved(moved(body, 0.5f, 'x'), 0.25f, char('A' + i));
  out[i] = float(after.mass) + after.place[0] + after.place[1] * 10 + after.place[2] * 100 + after.kind * 1000 + after.name[4];
}

// --- lambdas, and functions handed on ------------------------------------------------------------------------

template <typename F> __device__ __noinline__ int applied(F f, int from, int to) {
  int total = 0;
  for (int k = from; k < to; k++) total += f(k);
  return total;
}

extern "C" __global__ void lambdas(int *out, int scale) {
  int i = threadIdx.x, seen = 0;
  auto weigh = [=](int k) { return k * scale + i; };
  auto count = [&seen](int k) { seen += k & 1; return seen; };
  auto twice = [&](auto f, int k) { return f(k) + f(k + 1); };
  out[i] = applied(weigh, 0, i % 5) + applied(count, i, i + 4) + twice(weigh, i) + twice([](int k) { return -k; }, 1) + seen;
}

// --- a dense switch --------------------------------------------------------------------------------------------

extern "C" __global__ void switches(int *out, const int *which) {
  int i = threadIdx.x, value = i;
  switch (which[i]) {
    case 0: value += 11; break;
    case 1: value *= 3;
    case 2: value -= 5; break;
    case 3: value ^= 0x55; break;
    case 4: value = -value;
    case 5: value <<= 2; break;
    case 6: value = value % 7; break;
    case 7: return;
    default: value = 1000;
  }
  out[i] = value;
}
