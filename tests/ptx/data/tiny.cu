__global__ void tiny(int*x){ x[threadIdx.x]=1; }
