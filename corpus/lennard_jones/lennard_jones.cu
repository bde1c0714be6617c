// Molecular dynamics as LAMMPS's Kokkos package lays it out: atoms are sorted into cells, each atom gets a list of
// neighbours within a cutoff and a skin, forces come from the list, velocity Verlet moves the atoms.
#include "../support.cuh"

constexpr int SIDE = 8, ATOMS = SIDE * SIDE * SIDE, CELLS = 4, MOST = 96;
constexpr float BOX = 10.0f, CUTOFF = 2.2f, SKIN = 0.25f, STEP = 0.002f;

__host__ __device__ inline float nearest(float d) { return d > BOX / 2 ? d - BOX : d < -BOX / 2 ? d + BOX : d; }

__host__ __device__ inline int cell_of(float x)
{
    int cell = int(x * (CELLS / BOX));
    return cell < 0 ? 0 : cell >= CELLS ? CELLS - 1 : cell;
}

__global__ void count_cells(const float4 *x, unsigned int *counts, unsigned int *of)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= ATOMS)
        return;
    float4 p = x[i];
    unsigned int cell = (cell_of(p.z) * CELLS + cell_of(p.y)) * CELLS + cell_of(p.x);
    of[i] = cell;
    atomicAdd(&counts[cell], 1u);
}

__global__ void scan_cells(const unsigned int *counts, unsigned int *starts)
{
    __shared__ unsigned int sums[2][64];
    int i = threadIdx.x, now = 0;
    sums[0][i] = counts[i];
    __syncthreads();
    for (int reach = 1; reach < 64; reach *= 2, now ^= 1) {
        sums[now ^ 1][i] = sums[now][i] + (i >= reach ? sums[now][i - reach] : 0);
        __syncthreads();
    }
    starts[i] = sums[now][i] - counts[i];
}

// Atoms of a cell in the order of their numbers, whatever the order of blocks: so that sums have one order.
__global__ void fill_cells(const unsigned int *of, const unsigned int *starts, unsigned int *atoms)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= ATOMS)
        return;
    unsigned int before = 0;
    for (int j = 0; j < i; j++)
        before += of[j] == of[i];
    atoms[starts[of[i]] + before] = i;
}

__global__ void find_neighbours(const float4 *x, const unsigned int *counts, const unsigned int *starts,
                                const unsigned int *atoms, unsigned int *neighbours, unsigned int *found)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= ATOMS)
        return;
    float4 p = x[i];
    int cx = cell_of(p.x), cy = cell_of(p.y), cz = cell_of(p.z);
    unsigned int count = 0;
    for (int dz = -1; dz <= 1; dz++)
        for (int dy = -1; dy <= 1; dy++)
            for (int dx = -1; dx <= 1; dx++) {
                int cell = (((cz + dz + CELLS) % CELLS) * CELLS + (cy + dy + CELLS) % CELLS) * CELLS + (cx + dx + CELLS) % CELLS;
                for (unsigned int k = 0; k < counts[cell]; k++) {
                    unsigned int j = atoms[starts[cell] + k];
                    float4 q = x[j];
                    float ux = nearest(p.x - q.x), uy = nearest(p.y - q.y), uz = nearest(p.z - q.z);
                    float square = fmaf(ux, ux, fmaf(uy, uy, uz * uz));
                    if (j != unsigned(i) && square < (CUTOFF + SKIN) * (CUTOFF + SKIN) && count < MOST)
                        neighbours[count++ * ATOMS + i] = j;
                }
            }
    found[i] = count;
}

__global__ void forces(const float4 *x, const unsigned int *neighbours, const unsigned int *found, float4 *f)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= ATOMS)
        return;
    float4 p = x[i], sum = make_float4(0, 0, 0, 0);
    for (unsigned int k = 0; k < found[i]; k++) {
        float4 q = x[neighbours[k * ATOMS + i]];
        float ux = nearest(p.x - q.x), uy = nearest(p.y - q.y), uz = nearest(p.z - q.z);
        float square = fmaf(ux, ux, fmaf(uy, uy, uz * uz));
        if (square >= CUTOFF * CUTOFF)
            continue;
        float inverse = 1.0f / square, sixth = inverse * inverse * inverse;
        float force = 24.0f * inverse * sixth * (2.0f * sixth - 1.0f);
        sum.x = fmaf(force, ux, sum.x);
        sum.y = fmaf(force, uy, sum.y);
        sum.z = fmaf(force, uz, sum.z);
        sum.w += 2.0f * sixth * (sixth - 1.0f);
    }
    f[i] = sum;
}

__global__ void half_step(float4 *x, float4 *v, const float4 *f, bool moves)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= ATOMS)
        return;
    float4 speed = v[i], force = f[i], p = x[i];
    speed.x = fmaf(0.5f * STEP, force.x, speed.x);
    speed.y = fmaf(0.5f * STEP, force.y, speed.y);
    speed.z = fmaf(0.5f * STEP, force.z, speed.z);
    v[i] = speed;
    if (!moves)
        return;
    p.x = fmaf(STEP, speed.x, p.x), p.y = fmaf(STEP, speed.y, p.y), p.z = fmaf(STEP, speed.z, p.z);
    p.x -= BOX * floorf(p.x / BOX), p.y -= BOX * floorf(p.y / BOX), p.z -= BOX * floorf(p.z / BOX);
    x[i] = p;
}

// Kinetic and potential energy of a block in f64, by shuffles.
__global__ void energies(const float4 *v, const float4 *f, double *sums)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    double energy = i < ATOMS ? 0.5 * (double(v[i].x) * v[i].x + double(v[i].y) * v[i].y + double(v[i].z) * v[i].z) + f[i].w : 0;
    for (int reach = 16; reach > 0; reach /= 2)
        energy += __shfl_down_sync(0xffffffffu, energy, reach);
    if (threadIdx.x % 32 == 0)
        sums[i / 32] = energy;
}

int main(int argc, char **argv)
{
    Report report(argc, argv);
    std::vector<float4> place(ATOMS), speed(ATOMS);
    for (int i = 0; i < ATOMS; i++) {
        auto jitter = [&](int k) { return 0.1f * (float(hash(3 * i + k) >> 8) / 16777216.0f - 0.5f); };
        place[i] = make_float4((i % SIDE + 0.5f) * BOX / SIDE + jitter(0), (i / SIDE % SIDE + 0.5f) * BOX / SIDE + jitter(1),
                               (i / SIDE / SIDE + 0.5f) * BOX / SIDE + jitter(2), 0);
        speed[i] = make_float4(10 * jitter(10000), 10 * jitter(20000), 10 * jitter(30000), 0);
    }
    float4 *x = to_device(place), *v = to_device(speed), *f = poisoned<float4>(ATOMS);
    auto *counts = poisoned<unsigned int>(64), *starts = poisoned<unsigned int>(64), *of = poisoned<unsigned int>(ATOMS),
         *atoms = poisoned<unsigned int>(ATOMS),
         *neighbours = poisoned<unsigned int>(ATOMS * MOST), *found = poisoned<unsigned int>(ATOMS);
    double *sums = poisoned<double>(ATOMS / 32);
    const unsigned threads = 128, blocks = blocks_for(ATOMS, threads);
    CHECK(cudaMemset(counts, 0, 64 * sizeof *counts));
    count_cells<<<blocks, threads>>>(x, counts, of);
    scan_cells<<<1, 64>>>(counts, starts);
    fill_cells<<<blocks, threads>>>(of, starts, atoms);
    find_neighbours<<<blocks, threads>>>(x, counts, starts, atoms, neighbours, found);
    forces<<<blocks, threads>>>(x, neighbours, found, f);
    double first = 0, last = 0;
    energies<<<blocks, threads>>>(v, f, sums);
    for (double one : to_host(sums, ATOMS / 32))
        first += one;
    std::vector<float4> pushed = to_host(f, ATOMS);
    for (int step = 0; step < 3; step++) {
        half_step<<<blocks, threads>>>(x, v, f, true);
        forces<<<blocks, threads>>>(x, neighbours, found, f);
        half_step<<<blocks, threads>>>(x, v, f, false);
    }
    energies<<<blocks, threads>>>(v, f, sums);
    for (double one : to_host(sums, ATOMS / 32))
        last += one;
    CHECK(cudaDeviceSynchronize());

    for (int i = 0; i < ATOMS; i++) {
        double fx = 0, fy = 0;
        for (int j = 0; j < ATOMS; j++) {
            double ux = nearest(place[i].x - place[j].x), uy = nearest(place[i].y - place[j].y),
                   uz = nearest(place[i].z - place[j].z), square = ux * ux + uy * uy + uz * uz;
            if (i == j || square >= double(CUTOFF) * CUTOFF)
                continue;
            double sixth = 1 / (square * square * square), force = 24 / square * sixth * (2 * sixth - 1);
            fx += force * ux, fy += force * uy;
        }
        report.expect("force x", i, pushed[i].x, fx, 2e-3 * (1 + std::fabs(fx)));
        report.expect("force y", i, pushed[i].y, fy, 2e-3 * (1 + std::fabs(fy)));
    }
    report.expect("energy", 0, last, first, 0.05 * std::fabs(first));
    report.keep(to_host(x, ATOMS));
    report.keep(to_host(v, ATOMS));
    report.keep(to_host(found, ATOMS));
    return report.finish("lennard_jones");
}
