/* The kernels that Numba's tests launch, for the CPU. */
#include "launch.h"
#include <string.h>

/* __global__ void helloworld(int *numbers): the number of each thread of a block. Its PTX is in the tests. */
void _Z10helloworldPi(void **parameters, const struct softgpu_launch *launch);
void _Z10helloworldPi(void **parameters, const struct softgpu_launch *launch)
{
    int *numbers = launch->memory(launch, ARGUMENT(unsigned long long, 0), launch->block[0] * sizeof(int));
    for (unsigned n = 0; numbers != NULL && n < launch->block[0]; ++n) {
        numbers[n] = (int)n;
    }
}

/* ---- Names and parameters of the kernels that Numba compiles ----
 *
 * Numba counts the functions that it compiles, and a kernel's name contains its number, as B2v7 or B3v42: it depends on the
 * tests that ran before. So each kernel's code has the names with all numbers to 99. Then come its flags, which zlib packs. */
#define NAME(place, number, types) \
    _ZN5numba4cuda##place##number  \
    ##B104cw51cXTLSUwv1sDUaKthqaNgoKmjgOR3W3Cw6igA9duC0hkwnNGiHEkYkrqQBFBTDEwCyQe21eqwcFW3UoDGjzpQEsgzrtUEAA_3d_3dE##types
#define ONE(code, sizes, place, number, types)                                        \
    extern __typeof__(code) NAME(place, number, types) __attribute__((alias(#code))); \
    extern __typeof__(sizes) NAME(place, number, types##_parameters) __attribute__((alias(#sizes)));
#define TEN(code, sizes, place, tens, types) \
    ONE(code, sizes, place, tens##0, types)  \
    ONE(code, sizes, place, tens##1, types)  \
    ONE(code, sizes, place, tens##2, types)  \
    ONE(code, sizes, place, tens##3, types)  \
    ONE(code, sizes, place, tens##4, types)  \
    ONE(code, sizes, place, tens##5, types)  \
    ONE(code, sizes, place, tens##6, types)  \
    ONE(code, sizes, place, tens##7, types)  \
    ONE(code, sizes, place, tens##8, types)  \
    ONE(code, sizes, place, tens##9, types)
#define KERNEL(code, sizes, place, types) \
    TEN(code, sizes, place, B2v, types)   \
    TEN(code, sizes, place, B3v1, types)  \
    TEN(code, sizes, place, B3v2, types)  \
    TEN(code, sizes, place, B3v3, types)  \
    TEN(code, sizes, place, B3v4, types)  \
    TEN(code, sizes, place, B3v5, types)  \
    TEN(code, sizes, place, B3v6, types)  \
    TEN(code, sizes, place, B3v7, types)  \
    TEN(code, sizes, place, B3v8, types)  \
    TEN(code, sizes, place, B3v9, types)

/* An array is passed as words: two that are 0, how many elements it has, the size of one, their address, the length of each
 * dimension, and the stride of each in bytes. */
#define WORD(array, n) (*(long long *)(array)[n])
#define COUNT(array) WORD(array, 2)
#define LENGTH(array, dimension) WORD(array, 5 + (dimension))
#define WORDS(dimensions) (5 + 2 * (dimensions))

#define ARRAY_0 8, 8, 8, 8, 8
#define ARRAY_1 ARRAY_0, 8, 8
#define ARRAY_2 ARRAY_1, 8, 8
#define ARRAY_3 ARRAY_2, 8, 8
static const size_t nothing[] = {0};
static const size_t number[] = {8, 0};
static const size_t array_1[] = {ARRAY_1, 0};
static const size_t arrays_0[] = {ARRAY_0, ARRAY_0, 0};
static const size_t arrays_1[] = {ARRAY_1, ARRAY_1, 0};
static const size_t arrays_2[] = {ARRAY_2, ARRAY_2, 0};
static const size_t arrays_3[] = {ARRAY_3, ARRAY_3, 0};

/* The place of an element. NULL if there is no such memory. */
static void *at(const struct softgpu_launch *launch, void **array, int dimensions, const long long *index)
{
    unsigned long long address = (unsigned long long)WORD(array, 4);
    for (int d = 0; d < dimensions; ++d) {
        address += (unsigned long long)(index[d] * LENGTH(array, dimensions + d));
    }
    return launch->memory(launch, address, (size_t)WORD(array, 3));
}

/* How many elements of an array have a thread. */
static long long threads(const struct softgpu_launch *launch, void **array)
{
    long long all = (long long)launch->grid[0] * launch->block[0];
    return all < COUNT(array) ? all : COUNT(array);
}

/* ---- Assignments to slices: numba.cuda.cudadrv.devicearray ---- */

/* A dimension of length 1 is repeated. */
#define ASSIGN(code, dimensions, to_type, from_type, types)                    \
    static void code(void **to, const struct softgpu_launch *launch)           \
    {                                                                          \
        void **from = to + WORDS(dimensions);                                  \
        for (long long n = 0; n < threads(launch, to); ++n) {                  \
            long long to_index[3] = {0}, from_index[3] = {0}, rest = n;        \
            for (int d = (dimensions) - 1; d >= 0; --d) {                      \
                to_index[d] = rest % LENGTH(to, d);                            \
                from_index[d] = LENGTH(from, d) > 1 ? to_index[d] : 0;         \
                rest /= LENGTH(to, d);                                         \
            }                                                                  \
            to_type *assigned = at(launch, to, dimensions, to_index);          \
            const from_type *value = at(launch, from, dimensions, from_index); \
            if (assigned == NULL || value == NULL) {                           \
                return;                                                        \
            }                                                                  \
            *assigned = (to_type)*value;                                       \
        }                                                                      \
    }                                                                          \
    KERNEL(code, arrays_##dimensions, 7cudadrv11devicearray14_assign_kernel12_3clocals_3e6kernel, types)

ASSIGN(assign_integer, 0, long long, long long, 5ArrayIxLi0E1C7mutable7alignedE5ArrayIxLi0E1C7mutable7alignedE)
ASSIGN(assign_integers, 1, long long, long long, 5ArrayIxLi1E1C7mutable7alignedE5ArrayIxLi1E1C7mutable7alignedE)
ASSIGN(assign_column, 1, long long, long long, 5ArrayIxLi1E1A7mutable7alignedE5ArrayIxLi1E1C7mutable7alignedE)
ASSIGN(assign_matrix, 2, long long, long long, 5ArrayIxLi2E1C7mutable7alignedE5ArrayIxLi2E1C7mutable7alignedE)
ASSIGN(assign_cube, 3, long long, long long, 5ArrayIxLi3E1A7mutable7alignedE5ArrayIxLi3E1C7mutable7alignedE)
ASSIGN(assign_doubles, 1, double, long long, 5ArrayIdLi1E1A7mutable7alignedE5ArrayIxLi1E1C7mutable7alignedE)
ASSIGN(assign_float, 0, float, double, 5ArrayIfLi0E1C7mutable7alignedE5ArrayIdLi0E1C7mutable7alignedE)
ASSIGN(assign_floats, 2, float, float, 5ArrayIfLi2E1C7mutable7alignedE5ArrayIfLi2E1C7mutable7alignedE)

/* ---- numba.cuda.kernels.transpose ---- */

static void transpose(void **from, const struct softgpu_launch *launch)
{
    void **to = from + WORDS(2);
    for (long long y = 0; y < LENGTH(to, 0); ++y) {
        for (long long x = 0; x < LENGTH(to, 1); ++x) {
            void *element = at(launch, to, 2, (const long long[]){y, x});
            const void *value = at(launch, from, 2, (const long long[]){x, y});
            if (element == NULL || value == NULL) {
                return;
            }
            memcpy(element, value, (size_t)WORD(to, 3));
        }
    }
}
#define TRANSPOSE(types) KERNEL(transpose, arrays_2, 7kernels9transpose9transpose12_3clocals_3e6kernel, types)
TRANSPOSE(5ArrayIdLi2E1F7mutable7alignedE5ArrayIdLi2E1C7mutable7alignedE)
TRANSPOSE(5ArrayIdLi2E1C7mutable7alignedE5ArrayIdLi2E1C7mutable7alignedE)
TRANSPOSE(5ArrayIxLi2E1C7mutable7alignedE5ArrayIxLi2E1C7mutable7alignedE)

/* ---- Kernels of single tests ---- */

#define TEST(code, sizes, test, types) KERNEL(code, sizes, 5tests7cudadrv##test, types)

static void empty(void **parameters, const struct softgpu_launch *launch)
{
    (void)parameters;
    (void)launch;
}
#define CALLBACK(sizes, test, types) \
    TEST(empty, sizes, 21test_module_callbacks##test##12_3clocals_3e6kernel, types)
CALLBACK(nothing, 24TestModuleCallbacksBasic10test_basic, )
CALLBACK(nothing, 24TestModuleCallbacksBasic16test_two_kernels, )
CALLBACK(number, 24TestModuleCallbacksBasic23test_different_argtypes, x)
CALLBACK(number, 24TestModuleCallbacksBasic23test_different_argtypes, d)
CALLBACK(nothing, 26TestMultithreadedCallbacks30test_concurrent_initialization, )
CALLBACK(number, 26TestMultithreadedCallbacks45test_concurrent_initialization_different_args, x)
CALLBACK(number, 26TestMultithreadedCallbacks45test_concurrent_initialization_different_args, d)
CALLBACK(nothing, 34TestModuleCallbacksAPICompleteness8test_api, )
TEST(empty, nothing, 21test_module_callbacks24TestModuleCallbacksBasic16test_two_kernels12_3clocals_3e7kernel2, )

/* A kernel of one array, or of two: `value` is what the element `to` gets, in the thread `n`. */
#define ONE_ARRAY(code, type, value, count)                             \
    static void code(void **array, const struct softgpu_launch *launch) \
    {                                                                   \
        for (long long n = 0; n < (count); ++n) {                       \
            type *to = at(launch, array, 1, &n);                        \
            if (to == NULL) {                                           \
                return;                                                 \
            }                                                           \
            *to = (type)(value);                                        \
        }                                                               \
    }
#define TWO_ARRAYS(code, type, value)                                   \
    static void code(void **array, const struct softgpu_launch *launch) \
    {                                                                   \
        for (long long n = 0; n < threads(launch, array); ++n) {        \
            type *to = at(launch, array, 1, &n);                        \
            const type *from = at(launch, array + WORDS(1), 1, &n);     \
            if (to == NULL || from == NULL) {                           \
                return;                                                 \
            }                                                           \
            *to = (value);                                              \
        }                                                               \
    }

ONE_ARRAY(indices, long long, n, threads(launch, array))
TEST(indices, array_1,
       16test_cuda_driver14TestCudaDriver40test_cuda_core_stream_launch_user_facing12_3clocals_3e6kernel,
       5ArrayIxLi1E1C7mutable7alignedE)
TEST(indices, array_1,
       16test_cuda_driver14TestCudaDriver47test_cuda_core_graph_builder_launch_user_facing12_3clocals_3e6kernel,
       5ArrayIxLi1E1C7mutable7alignedE)

/* Each thread writes all elements. */
ONE_ARRAY(all_indices, double, n, COUNT(array))
TEST(all_indices, array_1,
       18test_context_stack19Test3rdPartyContext40test_cudajit_in_attached_primary_context12_3clocals_3e2do12_3clocals_3e3foo,
       5ArrayIdLi1E1C7mutable7alignedE)

/* No thread compares its index with the array's length: the test has too many threads, so the launch fails. */
ONE_ARRAY(unlimited, int, n, (long long)launch->grid[0] * launch->block[0])
TEST(unlimited, array_1, 11test_linker17simple_maxthreads, 5ArrayIiLi1E1C7mutable7alignedE)

ONE_ARRAY(ones, double, 1, threads(launch, array))
TEST(ones, array_1, 18test_managed_alloc16TestManagedAlloc19_test_managed_array12_3clocals_3e6kernel,
       5ArrayIdLi1E1A7mutable7alignedE)

/* A value in shared memory, of which the kernel also makes the address of a tensor map. */
ONE_ARRAY(two, int, 2, 1)
TEST(two, array_1, 16test_cuda_driver27TestAcceleratedArchitecture25test_device_arch_specific12_3clocals_3e6kernel,
       5ArrayIiLi1E1C7mutable7alignedE)

TWO_ARRAYS(add_one, float, *from + 1)
TEST(add_one, arrays_1, 16test_cuda_driver14TestCudaDriver22test_cuda_cache_config12_3clocals_3e7add_one,
       5ArrayIfLi1E1C7mutable7alignedE5ArrayIfLi1E1C7mutable7alignedE)
TEST(add_one, arrays_1,
       16test_cuda_driver14TestCudaDriver36test_cuda_set_shared_memory_carveout12_3clocals_3e7add_one,
       5ArrayIfLi1E1C7mutable7alignedE5ArrayIfLi1E1C7mutable7alignedE)

/* The function that these are linked with doubles a number. */
TWO_ARRAYS(doubles, int, 2 * *from)
TEST(doubles, arrays_1, 11test_linker10TestLinker15test_linking_cu12_3clocals_3e6kernel,
       5ArrayIiLi1E1C7mutable7alignedE5ArrayIiLi1E1C7mutable7alignedE)

TWO_ARRAYS(add_double, int, *to + 2 * *from)
TEST(add_double, arrays_1, 11test_linker10TestLinker13_test_linking12_3clocals_3e3foo,
       5ArrayIiLi1E1C7mutable7alignedE5ArrayIiLi1E1C7mutable7alignedE)
TEST(add_double, arrays_1, 11test_linker10TestLinker13_test_linking12_3clocals_3e3foo,
       5ArrayIiLi1E1A7mutable7alignedE5ArrayIiLi1E1A7mutable7alignedE)
