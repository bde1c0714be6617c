// What the device runtime does for kernels: printf in the order of one thread, a heap, assertions, recursion and
// calls through pointers.
#include "../support.cuh"

#include <cassert>

using Operation = int (*)(int, int);
__device__ __noinline__ int plus(int a, int b) { return a + b; }
__device__ __noinline__ int minus(int a, int b) { return a - b; }
__device__ __noinline__ int mixed(int a, int b) { return (a << 3) ^ (b * 7); }
__device__ Operation operations[3] = {plus, minus, mixed};

__device__ __noinline__ int ackermann(int m, int n)
{
    if (m == 0)
        return n + 1;
    return ackermann(m - 1, n == 0 ? 1 : ackermann(m, n - 1));
}

__global__ void talk(const int *in)
{
    int i = threadIdx.x;
    if (i == 3)
        for (int k = 0; k < 3; k++)
            printf("value %d of %s: %5d, %.3f, %c, %x, %lld\n", k, "three", in[k], in[k] / 7.0, 'a' + k, unsigned(in[k]),
                   (long long)in[k] * 1000000007ll);
}

struct Node {
    int value;
    Node *next;
};

// Each thread makes a list on the heap, walks it and gives it back.
__global__ void lists(const int *in, int *out, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count)
        return;
    Node *head = nullptr;
    for (int k = 0; k <= i % 5; k++) {
        Node *node = static_cast<Node *>(malloc(sizeof(Node)));
        assert(node != nullptr);
        node->value = in[i] + k;
        node->next = head;
        head = node;
    }
    int sum = 0;
    while (head != nullptr) {
        Node *next = head->next;
        sum = sum * 3 + head->value;
        free(head);
        head = next;
    }
    out[i] = sum;
}

__global__ void calls(const int *in, int *out, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count)
        return;
    int value = operations[in[i] % 3](in[i], i);
    switch (i % 7) {
    case 0: value += 11; break;
    case 1: value = -value; break;
    case 2: value ^= 0x55; break;
    case 3: value = value * value; break;
    case 4: value = ackermann(2, i % 4); break;
    case 5: value /= 9; break;
    default: value = ~value;
    }
    out[i] = value;
}

__global__ void clocks(unsigned int *ok)
{
    long long start = clock64();
    unsigned long long begun = 0, ended = 0;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begun));
    __nanosleep(100);
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ended));
    ok[threadIdx.x] = clock64() >= start && ended >= begun;
}

static int host_ackermann(int m, int n) { return m == 0 ? n + 1 : host_ackermann(m - 1, n == 0 ? 1 : host_ackermann(m, n - 1)); }

int main(int argc, char **argv)
{
    Report report(argc, argv);
    const int count = 500;
    std::vector<int> values(count);
    for (int i = 0; i < count; i++)
        values[i] = int(hash(i) >> 20);
    int *in = to_device(values), *out = poisoned<int>(count), *heads = poisoned<int>(count);
    unsigned int *ok = poisoned<unsigned int>(32);
    talk<<<1, 32>>>(in);
    lists<<<blocks_for(count, 64), 64>>>(in, heads, count);
    calls<<<blocks_for(count, 64), 64>>>(in, out, count);
    clocks<<<1, 32>>>(ok);
    CHECK(cudaDeviceSynchronize());
    std::vector<int> sums = to_host(heads, count), found = to_host(out, count);
    for (int i = 0; i < count; i++) {
        int sum = 0;
        for (int k = i % 5; k >= 0; k--)
            sum = sum * 3 + values[i] + k;
        report.expect("list", i, sums[i], sum);
        int a = values[i], value = a % 3 == 0 ? a + i : a % 3 == 1 ? a - i : (a << 3) ^ (i * 7);
        int expected[] = {value + 11, -value, value ^ 0x55, int(unsigned(value) * unsigned(value)), 0, value / 9, ~value};
        report.expect("call", i, found[i], i % 7 == 4 ? host_ackermann(2, i % 4) : expected[i % 7]);
    }
    for (unsigned int one : to_host(ok, 32))
        report.expect("clock", 0, one, 1);
    report.keep(sums);
    report.keep(found);
    return report.finish("device_services");
}
