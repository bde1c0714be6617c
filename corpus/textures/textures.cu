// Textures of every kind of memory (an array, pitched and linear memory, layers, a cube, a mip chain) and surfaces:
// a picture turned with linear filtering, bytes read as fractions, a mip chain made by surface reads and writes.
#include "../support.cuh"

#include <cstring>

constexpr int WIDTH = 40, HEIGHT = 24;    // of the pictures
constexpr int LAYERS = 3, SIDE = 8;       // of the layered array, and of the cube
constexpr int MIP_WIDTH = 32, MIP_HEIGHT = 16, LEVELS = 4;
constexpr int NUMBERS = 500;

// --- kernels ------------------------------------------------------------------------------------------

// Linear filtering in normalised coordinates that wrap round.
__global__ void turn(cudaTextureObject_t picture, float *turned, float cosine, float sine)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= WIDTH || y >= HEIGHT)
        return;
    float u = (x + 0.5f) / WIDTH - 0.5f, v = (y + 0.5f) / HEIGHT - 0.5f;
    turned[y * WIDTH + x] = tex2D<float>(picture, u * cosine - v * sine + 0.5f, u * sine + v * cosine + 0.5f);
}

// Bytes as fractions of 255; outside there is the border's colour.
__global__ void colours(cudaTextureObject_t pixels, float4 *out)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < WIDTH && y < HEIGHT)
        out[y * WIDTH + x] = tex2D<float4>(pixels, x - 3.5f, y + 0.5f);
}

struct Stack {
    cudaTextureObject_t layers, cube;
};

// A thread reads one texel of each layer and one of a cube's face; the objects come in a structure.
__global__ void stack(Stack of, int *sums, float *faces)
{
    int x = threadIdx.x, y = threadIdx.y, face = blockIdx.x, at = (face * SIDE + y) * SIDE + x, sum = 0;
    for (int layer = 0; layer < LAYERS; layer++)
        sum = 1000 * sum + tex2DLayered<unsigned short>(of.layers, (x + face) % SIDE + 0.5f, y + 0.5f, layer);
    sums[at] = sum;
    float s = (x + 0.5f) * 2 / SIDE - 1, t = (y + 0.5f) * 2 / SIDE - 1, sign = face % 2 ? -1.0f : 1.0f;
    float direction[3];
    direction[face / 2] = sign;
    direction[(face / 2 + 1) % 3] = s;
    direction[(face / 2 + 2) % 3] = t;
    faces[at] = texCubemap<float>(of.cube, direction[0], direction[1], direction[2]);
}

// The next level of a mip chain: means of four.
__global__ void halve(cudaSurfaceObject_t from, cudaSurfaceObject_t to, int width, int height)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height)
        return;
    float sum = 0;
    for (int i = 0; i < 4; i++)
        sum += surf2Dread<float>(from, (2 * x + i % 2) * int(sizeof(float)), 2 * y + i / 2);
    surf2Dwrite(sum * 0.25f, to, x * int(sizeof(float)), y);
}

__global__ void between_levels(cudaTextureObject_t mips, float *out)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < MIP_WIDTH && y < MIP_HEIGHT)
        out[y * MIP_WIDTH + x] =
            tex2DLod<float>(mips, (x + 0.25f) / MIP_WIDTH, (y + 0.5f) / MIP_HEIGHT, (x % 13) * 0.25f);
}

// Objects that a table in memory names, over linear memory.
__global__ void look_up(const cudaTextureObject_t *tables, const int *index, float *found, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        found[i] = tex1Dfetch<float>(tables[0], index[i]) - tex1Dfetch<float>(tables[1], i);
}

// --- objects ------------------------------------------------------------------------------------------

cudaResourceDesc resource_of(cudaArray_t array)
{
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    return resource;
}

cudaResourceDesc resource_of(float *memory, size_t count)
{
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeLinear;
    resource.res.linear.devPtr = memory;
    resource.res.linear.desc = cudaCreateChannelDesc<float>();
    resource.res.linear.sizeInBytes = count * sizeof(float);
    return resource;
}

cudaTextureDesc reading(cudaTextureAddressMode address, cudaTextureFilterMode filter, bool normalised)
{
    cudaTextureDesc texture = {};
    for (auto &mode : texture.addressMode)
        mode = address;
    texture.filterMode = filter;
    texture.normalizedCoords = normalised;
    return texture;
}

cudaTextureObject_t texture(const cudaResourceDesc &resource, const cudaTextureDesc &reading)
{
    cudaTextureObject_t object = 0;
    CHECK(cudaCreateTextureObject(&object, &resource, &reading, nullptr));
    return object;
}

cudaSurfaceObject_t surface(cudaArray_t array)
{
    cudaSurfaceObject_t object = 0;
    cudaResourceDesc resource = resource_of(array);
    CHECK(cudaCreateSurfaceObject(&object, &resource));
    return object;
}

template <typename T> cudaArray_t array_of(const std::vector<T> &texels, cudaExtent size, unsigned flags)
{
    cudaArray_t array = nullptr;
    cudaChannelFormatDesc format = cudaCreateChannelDesc<T>();
    CHECK(cudaMalloc3DArray(&array, &format, size, flags));
    cudaMemcpy3DParms copy = {};
    copy.srcPtr = make_cudaPitchedPtr(const_cast<T *>(texels.data()), size.width * sizeof(T), size.width, size.height);
    copy.dstArray = array;
    copy.extent = size;
    copy.kind = cudaMemcpyHostToDevice;
    CHECK(cudaMemcpy3D(&copy));
    return array;
}

// --- the program --------------------------------------------------------------------------------------

const dim3 BLOCK(8, 8);
dim3 blocks_of(int width, int height) { return dim3(blocks_for(width, BLOCK.x), blocks_for(height, BLOCK.y)); }

// What linear filtering gives, up to the eight bits of NVIDIA's fractions.
double filtered(const std::vector<float> &picture, double u, double v)
{
    double x = u * WIDTH - 0.5, y = v * HEIGHT - 0.5, fx = x - std::floor(x), fy = y - std::floor(y), sum = 0;
    for (int i = 0; i < 4; i++) {
        int column = ((int(std::floor(x)) + i % 2) % WIDTH + WIDTH) % WIDTH;
        int row = ((int(std::floor(y)) + i / 2) % HEIGHT + HEIGHT) % HEIGHT;
        sum += (i % 2 ? fx : 1 - fx) * (i / 2 ? fy : 1 - fy) * picture[row * WIDTH + column];
    }
    return sum;
}

void turn_picture(Report &report)
{
    const float cosine = 0.8f, sine = 0.6f;
    std::vector<float> picture = real_values(WIDTH * HEIGHT, 1, -1.0f, 2.0f);
    const int pitch = WIDTH + 6; // the host's rows have gaps
    std::vector<float> padded(pitch * HEIGHT, 100.0f);
    for (int y = 0; y < HEIGHT; y++)
        std::copy_n(&picture[y * WIDTH], WIDTH, &padded[y * pitch]);
    cudaArray_t array = nullptr;
    cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    CHECK(cudaMallocArray(&array, &format, WIDTH, HEIGHT));
    CHECK(cudaMemcpy2DToArray(array, 0, 0, padded.data(), pitch * sizeof(float), WIDTH * sizeof(float), HEIGHT,
                              cudaMemcpyHostToDevice));
    cudaTextureObject_t object =
        texture(resource_of(array), reading(cudaAddressModeWrap, cudaFilterModeLinear, true));
    float *device_turned = poisoned<float>(WIDTH * HEIGHT);
    turn<<<blocks_of(WIDTH, HEIGHT), BLOCK>>>(object, device_turned, cosine, sine);
    std::vector<float> turned = to_host(device_turned, WIDTH * HEIGHT);
    for (int y = 0; y < HEIGHT; y++)
        for (int x = 0; x < WIDTH; x++) {
            double u = (x + 0.5) / WIDTH - 0.5, v = (y + 0.5) / HEIGHT - 0.5;
            double expected = filtered(picture, u * cosine - v * sine + 0.5, u * sine + v * cosine + 0.5);
            report.expect("turned", y * WIDTH + x, turned[y * WIDTH + x], expected, 0.02);
        }
    report.keep(turned);
    CHECK(cudaDestroyTextureObject(object));
    CHECK(cudaFreeArray(array));
    CHECK(cudaFree(device_turned));
}

void read_colours(Report &report)
{
    std::vector<uchar4> pixels(WIDTH * HEIGHT);
    for (size_t i = 0; i < pixels.size(); i++) {
        uint32_t bits = hash(uint32_t(i) + 7);
        std::memcpy(&pixels[i], &bits, sizeof bits);
    }
    uchar4 *memory = nullptr;
    size_t pitch = 0;
    CHECK(cudaMallocPitch(&memory, &pitch, WIDTH * sizeof(uchar4), HEIGHT));
    CHECK(cudaMemcpy2D(memory, pitch, pixels.data(), WIDTH * sizeof(uchar4), WIDTH * sizeof(uchar4), HEIGHT,
                       cudaMemcpyHostToDevice));
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypePitch2D;
    resource.res.pitch2D.devPtr = memory;
    resource.res.pitch2D.desc = cudaCreateChannelDesc<uchar4>();
    resource.res.pitch2D.width = WIDTH;
    resource.res.pitch2D.height = HEIGHT;
    resource.res.pitch2D.pitchInBytes = pitch;
    cudaTextureDesc how = reading(cudaAddressModeBorder, cudaFilterModePoint, false);
    how.readMode = cudaReadModeNormalizedFloat;
    const float border[4] = {1.0f, 0.0f, 0.0f, 1.0f}; // it is kept as the texels are: in bytes
    std::copy_n(border, 4, how.borderColor);
    cudaTextureObject_t object = texture(resource, how);
    float4 *device_out = poisoned<float4>(WIDTH * HEIGHT);
    colours<<<blocks_of(WIDTH, HEIGHT), BLOCK>>>(object, device_out);
    std::vector<float4> out = to_host(device_out, WIDTH * HEIGHT);
    for (int i = 0; i < WIDTH * HEIGHT; i++) {
        int x = i % WIDTH - 4, at = i - 4;
        report.expect("red", i, out[i].x, x < 0 ? border[0] : pixels[at].x / 255.0, 1e-6);
        report.expect("alpha", i, out[i].w, x < 0 ? border[3] : pixels[at].w / 255.0, 1e-6);
    }
    report.keep(out);
    CHECK(cudaDestroyTextureObject(object));
    CHECK(cudaFree(memory));
    CHECK(cudaFree(device_out));
}

void read_stacks(Report &report)
{
    std::vector<unsigned short> texels(SIDE * SIDE * LAYERS);
    for (size_t i = 0; i < texels.size(); i++)
        texels[i] = (unsigned short)(hash(uint32_t(i) + 11) % 1000);
    std::vector<float> faces = real_values(SIDE * SIDE * 6, 13, 0.0f, 1.0f);
    cudaArray_t layered = array_of(texels, make_cudaExtent(SIDE, SIDE, LAYERS), cudaArrayLayered);
    cudaArray_t cube = array_of(faces, make_cudaExtent(SIDE, SIDE, 6), cudaArrayCubemap);
    cudaTextureDesc point = reading(cudaAddressModeClamp, cudaFilterModePoint, false);
    cudaTextureDesc towards = reading(cudaAddressModeClamp, cudaFilterModePoint, true);
    Stack of = {texture(resource_of(layered), point), texture(resource_of(cube), towards)};
    int *device_sums = poisoned<int>(SIDE * SIDE * 6);
    float *device_faces = poisoned<float>(SIDE * SIDE * 6);
    stack<<<6, dim3(SIDE, SIDE)>>>(of, device_sums, device_faces);
    std::vector<int> sums = to_host(device_sums, SIDE * SIDE * 6);
    std::vector<float> seen = to_host(device_faces, SIDE * SIDE * 6);
    for (int face = 0; face < 6; face++)
        for (int i = 0; i < SIDE * SIDE; i++) {
            int at = i / SIDE * SIDE + (i % SIDE + face) % SIDE, expected = 0;
            for (int layer = 0; layer < LAYERS; layer++)
                expected = 1000 * expected + texels[layer * SIDE * SIDE + at];
            report.expect("sum", face * SIDE * SIDE + i, sums[face * SIDE * SIDE + i], expected);
        }
    // However a face is turned, all of its texels are seen once.
    for (int face = 0; face < 6; face++) {
        auto begin = seen.begin() + face * SIDE * SIDE, texel = faces.begin() + face * SIDE * SIDE;
        std::vector<float> got(begin, begin + SIDE * SIDE), expected(texel, texel + SIDE * SIDE);
        std::sort(got.begin(), got.end());
        std::sort(expected.begin(), expected.end());
        for (int i = 0; i < SIDE * SIDE; i++)
            report.expect("face", face * SIDE * SIDE + i, got[i], expected[i]);
    }
    report.keep(sums);
    report.keep(seen);
    CHECK(cudaDestroyTextureObject(of.layers));
    CHECK(cudaDestroyTextureObject(of.cube));
    CHECK(cudaFreeArray(layered));
    CHECK(cudaFreeArray(cube));
    CHECK(cudaFree(device_sums));
    CHECK(cudaFree(device_faces));
}

void make_mips(Report &report)
{
    std::vector<float> largest = real_values(MIP_WIDTH * MIP_HEIGHT, 17, 0.0f, 4.0f);
    cudaMipmappedArray_t mips = nullptr;
    cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    CHECK(cudaMallocMipmappedArray(&mips, &format, make_cudaExtent(MIP_WIDTH, MIP_HEIGHT, 0), LEVELS,
                                   cudaArraySurfaceLoadStore));
    cudaArray_t level[LEVELS];
    cudaSurfaceObject_t surfaces[LEVELS];
    for (int i = 0; i < LEVELS; i++) {
        CHECK(cudaGetMipmappedArrayLevel(&level[i], mips, i));
        surfaces[i] = surface(level[i]);
    }
    CHECK(cudaMemcpy2DToArray(level[0], 0, 0, largest.data(), MIP_WIDTH * sizeof(float), MIP_WIDTH * sizeof(float),
                              MIP_HEIGHT, cudaMemcpyHostToDevice));
    for (int i = 1; i < LEVELS; i++) {
        int width = MIP_WIDTH >> i, height = MIP_HEIGHT >> i;
        halve<<<blocks_of(width, height), BLOCK>>>(surfaces[i - 1], surfaces[i], width, height);
    }
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeMipmappedArray;
    resource.res.mipmap.mipmap = mips;
    cudaTextureDesc how = reading(cudaAddressModeMirror, cudaFilterModeLinear, true);
    how.mipmapFilterMode = cudaFilterModeLinear;
    how.maxMipmapLevelClamp = LEVELS - 1;
    cudaTextureObject_t object = texture(resource, how);
    float *device_out = poisoned<float>(MIP_WIDTH * MIP_HEIGHT);
    between_levels<<<blocks_of(MIP_WIDTH, MIP_HEIGHT), BLOCK>>>(object, device_out);

    std::vector<float> out = to_host(device_out, MIP_WIDTH * MIP_HEIGHT);
    const int width = MIP_WIDTH / 2, height = MIP_HEIGHT / 2;
    std::vector<float> half(width * height);
    CHECK(cudaMemcpy2DFromArray(half.data(), width * sizeof(float), level[1], 0, 0, width * sizeof(float), height,
                                cudaMemcpyDeviceToHost));
    for (int i = 0; i < width * height; i++) {
        float sum = 0;
        for (int j = 0; j < 4; j++)
            sum += largest[(i / width * 2 + j / 2) * MIP_WIDTH + i % width * 2 + j % 2];
        report.expect("half", i, half[i], sum * 0.25f);
    }
    for (float value : out)
        report.expect("between levels", 0, value, 2.0, 2.0); // a mean of numbers from 0 to 4
    report.keep(out);
    report.keep(half);
    CHECK(cudaDestroyTextureObject(object));
    for (cudaSurfaceObject_t one : surfaces)
        CHECK(cudaDestroySurfaceObject(one));
    CHECK(cudaFreeMipmappedArray(mips));
    CHECK(cudaFree(device_out));
}

void look_up_numbers(Report &report)
{
    std::vector<float> first = real_values(NUMBERS, 19, 0.0f, 1.0f), second = real_values(NUMBERS, 23, 0.0f, 1.0f);
    std::vector<int> index(NUMBERS);
    for (int i = 0; i < NUMBERS; i++)
        index[i] = int(hash(i + 29) % (NUMBERS + 20)) - 10; // outside there is zero
    float *device_first = to_device(first), *device_second = to_device(second);
    cudaTextureDesc how = reading(cudaAddressModeClamp, cudaFilterModePoint, false);
    std::vector<cudaTextureObject_t> tables = {texture(resource_of(device_first, NUMBERS), how),
                                               texture(resource_of(device_second, NUMBERS), how)};
    cudaTextureObject_t *device_tables = to_device(tables);
    int *device_index = to_device(index);
    float *device_found = poisoned<float>(NUMBERS);
    look_up<<<blocks_for(NUMBERS, 128), 128>>>(device_tables, device_index, device_found, NUMBERS);
    std::vector<float> found = to_host(device_found, NUMBERS);
    for (int i = 0; i < NUMBERS; i++) {
        float expected = index[i] < 0 || index[i] >= NUMBERS ? 0.0f : first[index[i]];
        report.expect("found", i, found[i], expected - second[i]);
    }
    report.keep(found);
    for (cudaTextureObject_t object : tables)
        CHECK(cudaDestroyTextureObject(object));
    for (void *pointer : {(void *)device_first, (void *)device_second, (void *)device_tables, (void *)device_index,
                          (void *)device_found})
        CHECK(cudaFree(pointer));
}

int main(int argc, char **argv)
{
    Report report(argc, argv);
    turn_picture(report);
    read_colours(report);
    read_stacks(report);
    make_mips(report);
    look_up_numbers(report);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    return report.finish("textures");
}
