/* Measures in microseconds how long the library takes to load and to answer. A process loads it once, so each run is
 * one measurement.
 *
 *     for i in $(seq 101); do ./startup libcudamem.so.0.1; done
 *
 * Each run prints the times to load the file, for the first call, which needs no driver, and for the first call that
 * looks for one. */
#include <cudamem.h>

#include <dlfcn.h>
#include <stdio.h>
#include <time.h>

static double now(void)
{
    struct timespec time;
    timespec_get(&time, TIME_UTC);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

int main(int count, char **arguments)
{
    if (count != 2) {
        fprintf(stderr, "usage: startup LIBRARY\n");
        return 2;
    }
    const double begin = now();
    void *library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    const double loaded = now();
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    uint32_t (*version_number)(void);
    cudamem_status (*device_count)(int32_t *devices);
    *(void **)&version_number = dlsym(library, "cudamem_version_number");
    *(void **)&device_count = dlsym(library, "cudamem_device_get_count");
    int32_t devices = 0;
    const double found = now();
    const uint32_t version = version_number();
    const double called = now();
    const cudamem_status status = device_count(&devices);
    const double looked = now();
    printf("load %.1f, first call %.2f, first call that needs the driver %.1f (status %d, release %u)\n", loaded - begin,
           called - found, looked - called, (int)status, (unsigned)version);
    return 0;
}
