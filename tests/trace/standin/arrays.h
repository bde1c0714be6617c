/* CUDA arrays of the stand-in driver: host memory whose rows have gaps between them, as a GPU's are not in order. */

#define GAP 48

struct array_descriptor { size_t width, height; unsigned format, channels; };
struct array_descriptor_3d { size_t width, height, depth; unsigned format, channels, flags; };

struct array
{
  struct array_descriptor_3d descriptor;
  size_t width, height, depth, texel, pitch;
  unsigned levels;
  struct array * level[18];
  char * texels;
};

/* Texture and surface objects count from 1; what an object is bound to. */
struct object { struct array * array; uint64_t address; char resource[144], texture[104]; };
static struct object objects[64];
static uint64_t object_count;

struct copy_end_2d { size_t x, y; unsigned type; char * host; char * device; struct array * array; size_t pitch; };
struct copy_2d { struct copy_end_2d from, to; size_t width, height; };
struct copy_end_3d
{
  size_t x, y, z, level;
  unsigned type;
  char * host, * device;
  struct array * array;
  void * reserved;
  size_t pitch, height;
};
struct copy_3d { struct copy_end_3d from, to; size_t width, height, depth; };
struct resource { unsigned type; union { struct array * array; uint64_t address; } of; };

static struct array *
make_array (size_t width, size_t height, size_t depth, size_t texel)
{
  struct array * array = calloc (1, sizeof *array);

  array->width = width, array->height = height, array->depth = depth, array->texel = texel;
  array->pitch = width * texel + GAP;
  array->texels = malloc (array->pitch * (height ? height : 1) * (depth ? depth : 1));
  memset (array->texels, 0xee, array->pitch * (height ? height : 1) * (depth ? depth : 1));
  array->levels = 1, array->level[0] = array;
  return array;
}

static size_t
texel_bytes (unsigned format, unsigned channels)
{
  return (format == 0x20 ? 4 : format == 0x10 || format == 2 ? 2 : 1) * channels;
}

API cuArrayCreate_v2 (struct array ** made, const struct array_descriptor * d)
{
  *made = make_array (d->width, d->height, 0, texel_bytes (d->format, d->channels));
  return OK;
}
API cuArray3DCreate_v2 (struct array ** made, const struct array_descriptor_3d * d)
{
  if (d->width == 0)
    return INVALID_VALUE;
  *made = make_array (d->width, d->height, d->depth, texel_bytes (d->format, d->channels));
  (*made)->descriptor = *d;
  return OK;
}
API cuArray3DGetDescriptor_v2 (struct array_descriptor_3d * d, struct array * array) { *d = array->descriptor; return OK; }
API cuArrayDestroy (struct array * array) { return array && array->levels == 1 ? OK : INVALID_VALUE; }
API cuMipmappedArrayCreate (struct array ** made, const struct array_descriptor_3d * d, unsigned levels)
{
  *made = calloc (1, sizeof **made);
  (*made)->levels = levels;
  for (unsigned i = 0; i < levels; i++)
    (*made)->level[i] = make_array (d->width >> i ? d->width >> i : 1, d->height >> i ? d->height >> i : d->height > 0,
                                    d->flags & 5 || !d->depth ? d->depth : d->depth >> i ? d->depth >> i : 1,
                                    texel_bytes (d->format, d->channels));
  return OK;
}
API cuMipmappedArrayGetLevel (struct array ** level, struct array * array, unsigned number)
{
  *level = array->level[number];
  return number < array->levels ? OK : INVALID_VALUE;
}
API cuMipmappedArrayDestroy (struct array * array) { return OK; }

static char *
row_of (const struct copy_end_3d * end, size_t y, size_t z)
{
  size_t height = end->type == 3 ? (end->array->height ? end->array->height : 1) : end->height;
  size_t pitch = end->type == 3 ? end->array->pitch : end->pitch;
  char * base = end->type == 3 ? end->array->texels : end->type == 1 ? end->host : end->device; /* 4: unified */

  return base + ((end->z + z) * height + end->y + y) * pitch + end->x;
}

static CUresult
copy_box (const struct copy_3d * c)
{
  for (size_t z = 0; z < c->depth; z++)
    for (size_t y = 0; y < c->height; y++)
      memmove (row_of (&c->to, y, z), row_of (&c->from, y, z), c->width);
  return OK;
}

static struct copy_end_3d
widened (const struct copy_end_2d * end)
{
  struct copy_end_3d wide = { end->x, end->y, 0, 0, end->type, end->host, end->device, end->array, NULL, end->pitch, 0 };
  return wide;
}

API cuMemcpy2D_v2 (const struct copy_2d * c)
{
  struct copy_3d wide = { widened (&c->from), widened (&c->to), c->width, c->height, 1 };
  return copy_box (&wide);
}
API cuMemcpy2DAsync_v2 (const struct copy_2d * c, void * stream) { return cuMemcpy2D_v2 (c); }
API cuMemcpy3D_v2 (const struct copy_3d * c) { return copy_box (c); }
API cuMemcpy3DAsync_v2 (const struct copy_3d * c, void * stream) { return copy_box (c); }

API cuMemcpyAtoA_v2 (struct array * to, size_t at, struct array * from, size_t start, size_t n)
{
  memmove (to->texels + at, from->texels + start, n);
  return OK;
}
API cuMemcpyHtoA_v2 (struct array * to, size_t at, const void * from, size_t n) { memcpy (to->texels + at, from, n); return OK; }
API cuMemcpyAtoH_v2 (void * to, struct array * from, size_t at, size_t n) { memcpy (to, from->texels + at, n); return OK; }
API cuMemcpyAtoD_v2 (CUdeviceptr to, struct array * from, size_t at, size_t n) { memcpy ((void *) to, from->texels + at, n); return OK; }
API cuMemcpyDtoA_v2 (struct array * to, size_t at, CUdeviceptr from, size_t n) { memcpy (to->texels + at, (void *) from, n); return OK; }

static CUresult
make_object (uint64_t * handle, const struct resource * resource)
{
  *handle = ++object_count;
  memcpy (objects[*handle].resource, resource, 144);
  if (resource->type <= 1)
    objects[*handle].array = resource->of.array;
  else
    objects[*handle].address = resource->of.address;
  return OK;
}
API cuTexObjectCreate (uint64_t * handle, const struct resource * r, const void * t, const void * v)
{
  make_object (handle, r);
  memcpy (objects[*handle].texture, t, 104);
  return OK;
}
API cuTexObjectGetResourceDesc (void * r, uint64_t handle) { memcpy (r, objects[handle].resource, 144); return OK; }
API cuSurfObjectGetResourceDesc (void * r, uint64_t handle) { memcpy (r, objects[handle].resource, 144); return OK; }
API cuTexObjectGetTextureDesc (void * t, uint64_t handle) { memcpy (t, objects[handle].texture, 104); return OK; }
API cuSurfObjectCreate (uint64_t * handle, const struct resource * r) { return make_object (handle, r); }
API cuTexObjectDestroy (uint64_t handle) { return OK; }
API cuSurfObjectDestroy (uint64_t handle) { return OK; }
