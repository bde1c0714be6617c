/* 128 bits that tell whether a page has changed, computed alike here and, by look.ptx on the GPU.
 *
 * DIGEST_LANES lanes each go through pairs of 8-byte words that lie DIGEST_LANES pairs apart (so that the GPU's threads
 * read side by side): two chains of multiply and shift, each step of which can be undone, so that one word that changes
 * always changes its lane. The lanes are mixed and added. Not against an adversary.
 */

#define DIGEST_LANES 256
#define DIGEST_MULTIPLY_A 0x9FB21C651E98DF25ULL
#define DIGEST_MULTIPLY_B 0xD6E8FEB86659FD93ULL
#define DIGEST_START_A 0x9E3779B97F4A7C15ULL
#define DIGEST_START_B 0xC2B2AE3D27D4EB4FULL

/* Of `size` bytes, at most a page; what is missing to whole words is 0. */
static void
digest (const u8 * data, u64 size, u64 * out)
{
  u64 words = (size + 7) / 8, lane, at, a, b, word, sum_a = size, sum_b = size;

  for (lane = 0; lane != DIGEST_LANES; lane++)
  {
    a = DIGEST_START_A * (lane + 1);
    b = DIGEST_START_B * (lane + 1);
    for (at = 2 * lane; at < words; at += (at & 1) ? 2 * DIGEST_LANES - 1 : 1)
    {
      if (8 * at + 8 <= size)
        word = *(const u64 *) (data + 8 * at);
      else
      {
        word = 0;
        memcpy (&word, data + 8 * at, size - 8 * at);
      }
      a = (a ^ word) * DIGEST_MULTIPLY_A;
      a ^= a >> 32;
      b = (b + word) * DIGEST_MULTIPLY_B;
      b ^= b >> 29;
    }
    sum_a += (a ^ (a >> 31)) * DIGEST_MULTIPLY_B;
    sum_b += (b ^ (b >> 33)) * DIGEST_MULTIPLY_A;
  }
  out[0] = sum_a;
  out[1] = sum_b;
}
