/* The kernels that cudarc's tests launch, for the CPU. */
#include "launch.h"
#include <limits.h>
#include <math.h>

#define KERNEL(name) void name(void **parameters, const struct softgpu_launch *launch)

/* The tests launch at least as many threads as there are values. */
KERNEL(sin_kernel);
KERNEL(sin_kernel)
{
    size_t count = ARGUMENT(size_t, 2);
    float *to = launch->memory(launch, ARGUMENT(unsigned long long, 0), count * sizeof(float));
    const float *from = launch->memory(launch, ARGUMENT(unsigned long long, 1), count * sizeof(float));
    for (size_t n = 0; to != NULL && from != NULL && n < count; ++n) {
        to[n] = sinf(from[n]);
    }
}

/* A sum that takes some milliseconds. */
KERNEL(slow_worker);
KERNEL(slow_worker)
{
    size_t count = ARGUMENT(size_t, 1);
    const float *from = launch->memory(launch, ARGUMENT(unsigned long long, 0), count * sizeof(float));
    float *to = launch->memory(launch, ARGUMENT(unsigned long long, 2), sizeof(float));
    if (from == NULL || to == NULL) {
        return;
    }
    float sum = 0;
    for (size_t n = 0; n < 1000000; ++n) {
        sum += from[n % count];
    }
    *to = sum;
}

/* Two tests have kernels of this name. One gets a structure: a count of 128, and two arrays with their indices. The other gets
 * the address of 100 floats, which are their indices. */
KERNEL(kernel);
KERNEL(kernel)
{
    const size_t *words = parameters[0];
    if (words[0] == 128) {
        for (size_t n = 0; n < 256; ++n) {
            EXPECT(words[1 + n] == n % 128);
        }
        return;
    }
    const float *values = launch->memory(launch, words[0], 100 * sizeof(float));
    for (size_t n = 0; values != NULL && n < 100; ++n) {
        EXPECT(values[n] == (float)n);
    }
}

/* The least and the greatest value, of signed and then of unsigned numbers. */
#define LIMITS(name, type, least, greatest, all)          \
    KERNEL(name);                                         \
    KERNEL(name)                                          \
    {                                                     \
        EXPECT(ARGUMENT(type, 0) == (least));             \
        EXPECT(ARGUMENT(type, 1) == (greatest));          \
        EXPECT(ARGUMENT(unsigned type, 2) == 0);          \
        EXPECT(ARGUMENT(unsigned type, 3) == (all));      \
    }
LIMITS(int_16bit, short, SHRT_MIN, SHRT_MAX, USHRT_MAX)
LIMITS(int_32bit, int, INT_MIN, INT_MAX, UINT_MAX)
LIMITS(int_64bit, long, LONG_MIN, LONG_MAX, ULONG_MAX)

KERNEL(int_8bit);
KERNEL(int_8bit)
{
    EXPECT(ARGUMENT(signed char, 0) == SCHAR_MIN);
    EXPECT(ARGUMENT(signed char, 1) == SCHAR_MAX);
    EXPECT(ARGUMENT(unsigned char, 2) == 0);
    EXPECT(ARGUMENT(unsigned char, 3) == UCHAR_MAX);
}

KERNEL(floating);
KERNEL(floating)
{
    EXPECT(fabs((double)ARGUMENT(float, 0) - 1.2345678) <= 1e-7);
    EXPECT(fabs(ARGUMENT(double, 1) - -10.123456789876543) <= 1e-16);
}
