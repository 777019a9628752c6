/* The driver functions that a launch needs. */
#include "kernels.h"

#include <dlfcn.h>

/* Converts dlsym's result to a function pointer; ISO C defines no cast for this. */
union function {
    void *address;
    int (*push)(void *context);
    int (*pop)(void **context);
    int (*load)(void **module, const void *image);
    int (*unload)(void *module);
    int (*find)(void **function, void *module, const char *name);
    int (*launch)(void *function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *stream,
                  void **arguments, void **extra);
};

static union function driver(struct kernels kernels, const char *name)
{
    union function function;
    function.address = dlsym(kernels.library, name);
    CHECK(function.address != NULL);
    return function;
}

static void leave(struct kernels kernels)
{
    void *left = NULL;
    CHECK(driver(kernels, "cuCtxPopCurrent_v2").pop(&left) == 0 && left == kernels.context);
}

struct kernels kernels_open(struct rig rig)
{
    struct kernels kernels = {NULL, NULL, NULL};
    const char *name = getenv("CUDA_MEM_LIBCUDA"), *path = getenv("SIGNAL_PTX");
    CHECK(path != NULL);
    kernels.library = dlopen(name != NULL && *name != 0 ? name : "libcuda.so.1", RTLD_NOW);
    CHECK(kernels.library != NULL);
    FILE *file = fopen(path, "r");
    CHECK(file != NULL);
    enum { ROOM = 1 << 20 };
    char *text = calloc(1, ROOM);
    CHECK(text != NULL && fread(text, 1, ROOM - 1, file) > 1000 && fclose(file) == 0);
    OK(cudamem_get_raw(rig.context.id, &kernels.context));
    CHECK(driver(kernels, "cuCtxPushCurrent_v2").push(kernels.context) == 0);
    CHECK(driver(kernels, "cuModuleLoadData").load(&kernels.module, text) == 0);
    leave(kernels);
    free(text);
    return kernels;
}

void kernels_launch(struct kernels kernels, const char *name, cudamem_stream stream, void **arguments)
{
    void *function = NULL, *raw = NULL;
    OK(cudamem_get_raw(stream.id, &raw));
    CHECK(driver(kernels, "cuCtxPushCurrent_v2").push(kernels.context) == 0);
    CHECK(driver(kernels, "cuModuleGetFunction").find(&function, kernels.module, name) == 0);
    CHECK(driver(kernels, "cuLaunchKernel").launch(function, 1, 1, 1, 1, 1, 1, 0, raw, arguments, NULL) == 0);
    leave(kernels);
}

void kernels_close(struct kernels kernels)
{
    CHECK(driver(kernels, "cuCtxPushCurrent_v2").push(kernels.context) == 0);
    CHECK(driver(kernels, "cuModuleUnload").unload(kernels.module) == 0);
    leave(kernels);
    CHECK(dlclose(kernels.library) == 0);
}
