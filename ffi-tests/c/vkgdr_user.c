/* Uses only the published interface of upstream's vkgdr, so it builds with our header and runs with either library. It
 * declares the CUDA functions that it calls, so it needs no toolkit. */
#include <vkgdr.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif
int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuDevicePrimaryCtxRelease_v2(int device);
int cuCtxSetCurrent(void *context);
int cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t size);
int cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t size);
#ifdef __cplusplus
}
#endif

#define CHECK(condition)                                                       \
    do {                                                                       \
        if (!(condition)) {                                                    \
            char *error = vkgdr_last_error();                                  \
            fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #condition, error ? error : "no error"); \
            free(error);                                                       \
            return 1;                                                          \
        }                                                                      \
    } while (0)

/* Whether the last error contains these words. The caller of vkgdr_last_error must free its result. */
static int error_says(const char *words)
{
    char *error = vkgdr_last_error();
    int says = error != NULL && strstr(error, words) != NULL;
    if (!says)
        fprintf(stderr, "the last error is: %s\n", error ? error : "none");
    free(error);
    return says;
}

static int basic(uint32_t flags)
{
    enum { SIZE = 4097 };
    unsigned char seen[SIZE];
    vkgdr_t g = vkgdr_open(0, flags);
    CHECK(g != NULL);
    vkgdr_memory_t memory = vkgdr_memory_alloc(g, SIZE, 0);
    CHECK(memory != NULL);
    CHECK(vkgdr_memory_get_size(memory) == SIZE);
    size_t atom = vkgdr_memory_non_coherent_atom_size(memory);
    CHECK(vkgdr_memory_is_coherent(memory) ? atom == 1 : atom > 1);
    CHECK(!(flags & VKGDR_OPEN_REQUIRE_COHERENT_BIT) || vkgdr_memory_is_coherent(memory));
    CHECK(!(flags & VKGDR_OPEN_FORCE_NON_COHERENT_BIT) || !vkgdr_memory_is_coherent(memory));

    unsigned char *host = (unsigned char *)vkgdr_memory_get_host_ptr(memory);
    for (size_t i = 0; i < SIZE; i++)
        host[i] = (unsigned char)(i * 7);
    vkgdr_memory_flush(memory, 0, SIZE);
    CHECK(cuMemcpyDtoH_v2(seen, vkgdr_memory_get_device_ptr(memory), SIZE) == 0);
    CHECK(memcmp(seen, host, SIZE) == 0);

    for (size_t i = 0; i < SIZE; i++)
        seen[i] = (unsigned char)(i * 13);
    CHECK(cuMemcpyHtoD_v2(vkgdr_memory_get_device_ptr(memory), seen, SIZE) == 0);
    vkgdr_memory_invalidate(memory, 0, SIZE);
    CHECK(memcmp(seen, host, SIZE) == 0);

    vkgdr_memory_free(memory);
    vkgdr_close(g);
    return 0;
}

int main(void)
{
    CHECK(cuInit(0) == 0);
    CHECK(vkgdr_open(0, VKGDR_OPEN_CURRENT_CONTEXT_BIT) == NULL && error_says("CUDA_ERROR_INVALID_CONTEXT"));

    void *context;
    CHECK(cuDevicePrimaryCtxRetain(&context, 0) == 0 && cuCtxSetCurrent(context) == 0);
    CHECK(vkgdr_open(-1, 0) == NULL && error_says("CUDA_ERROR_INVALID_DEVICE"));
    CHECK(basic(0) == 0);
    CHECK(basic(VKGDR_OPEN_CURRENT_CONTEXT_BIT) == 0);
    CHECK(basic(VKGDR_OPEN_REQUIRE_COHERENT_BIT) == 0);
    CHECK(basic(VKGDR_OPEN_FORCE_NON_COHERENT_BIT) == 0);

    vkgdr_t g = vkgdr_open(0, 0);
    CHECK(g != NULL);
    CHECK(vkgdr_memory_alloc(g, (size_t)1000 * 1000 * 1000 * 1000 * 1000, 0) == NULL);
    CHECK(error_says("VK_ERROR_OUT_OF_DEVICE_MEMORY"));
    vkgdr_close(g);
    vkgdr_memory_free(NULL);
    vkgdr_close(NULL);

#ifdef OURS /* Upstream crashes on these arguments, accepts them, or lacks the function. */
    g = vkgdr_open(0, 0);
    CHECK(g != NULL);
    CHECK(vkgdr_open(0, 8) == NULL && error_says("VKGDR_ERROR"));
    CHECK(vkgdr_memory_alloc(g, 0, 0) == NULL && error_says("VKGDR_ERROR"));
    CHECK(vkgdr_memory_alloc(g, 1, 1) == NULL && error_says("VKGDR_ERROR"));
    CHECK(vkgdr_memory_alloc(g, (size_t)-1, 0) == NULL && error_says("VK_ERROR_OUT_OF_DEVICE_MEMORY"));
    CHECK(vkgdr_memory_alloc(NULL, 1, 0) == NULL && error_says("VKGDR_ERROR"));
    CHECK(vkgdr_memory_get_host_ptr(NULL) == NULL && vkgdr_memory_get_size(NULL) == 0);
    CHECK(vkgdr_memory_get_device_ptr(NULL) == 0);
    vkgdr_memory_flush(NULL, 0, 1);
    vkgdr_memory_t memory = vkgdr_memory_alloc(g, 4097, 0);
    CHECK(memory != NULL);
    CHECK(vkgdr_memory_flush_checked(memory, 1, 3) == 0);
    CHECK(vkgdr_memory_flush_checked(memory, 4097, 0) == 0);
    CHECK(vkgdr_memory_flush_checked(memory, 4097, 1) != 0 && error_says("4097"));
    CHECK(vkgdr_memory_invalidate_checked(memory, (size_t)-1, 2) != 0);
    CHECK(vkgdr_memory_flush_checked(NULL, 0, 1) != 0);
    int fd = -1;
    CHECK(vkgdr_memory_export_fd(memory, NULL) != 0);
    CHECK(vkgdr_memory_export_fd(memory, &fd) == 0 && fd >= 0);
    vkgdr_memory_t twin = vkgdr_memory_import_fd(g, fd, 4097, 0);
    CHECK(twin != NULL);
    *(volatile unsigned char *)vkgdr_memory_get_host_ptr(memory) = 42;
    CHECK(*(volatile unsigned char *)vkgdr_memory_get_host_ptr(twin) == 42);
    CHECK(vkgdr_memory_import_fd(g, -1, 4097, 0) == NULL);
    vkgdr_memory_free(twin);
    vkgdr_memory_free(memory);
    vkgdr_close(g);
    char *text = vkgdr_describe();
    CHECK(text != NULL && text[0] == '{');
    free(text);
    CHECK(strstr(vkgdr_version(), "cuda-mem") != NULL);
    vkgdr_trim();
#endif
    CHECK(cuDevicePrimaryCtxRelease_v2(0) == 0);
    puts("everything as expected");
    return 0;
}
