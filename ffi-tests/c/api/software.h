/* What only the software GPU can do: lists what is left behind, and lets calls fail. In C and C++. */
#ifndef SOFTWARE_H
#define SOFTWARE_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* A function of the software GPU. ISO C has no cast from the pointers of dlsym to those of functions. */
union software_function {
    void *address;
    size_t (*live)(void);
    char *(*report)(void);
    int (*faults)(const char *text);
    uint64_t (*injected)(void);
};

/* The address is NULL if the program runs over another driver. */
static inline union software_function software(const char *name)
{
    union software_function function;
    const char *path = getenv("CUDA_MEM_LIBCUDA");
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
    function.address = library ? dlsym(library, name) : NULL;
    if (library != NULL) {
        dlclose(library);
    }
    return function;
}

/* Fails if the software GPU reports leaked objects or misuse. */
static inline void check_ledger(void)
{
    const union software_function live = software("softgpu_ledger_live");
    if (live.address == NULL) {
        return;
    }
    char *report = software("softgpu_ledger_report").report();
    if (live.live() != 0) {
        fprintf(stderr, "left behind:\n%s\n", report);
        exit(1);
    }
    free(report);
    char *misuse = software("softgpu_misuse_report").report();
    if (misuse == NULL || misuse[0] != 0) {
        fprintf(stderr, "misused:\n%s\n", misuse ? misuse : "unknown");
        exit(1);
    }
    free(misuse);
}

/* Whether calls can be made to fail. If not, says so. */
static inline int can_inject_faults(void)
{
    if (software("softgpu_faults").address != NULL) {
        return 1;
    }
    puts("skipped: faults at each call of the driver: only the software GPU injects them: CUDA_MEM_LIBCUDA=.../libsoftgpu.so");
    return 0;
}

/* From now on, the call of this number, counted from 1, fails with CUDA_ERROR_UNKNOWN. */
static inline void fail_call(int number)
{
    char text[32];
    snprintf(text, sizeof text, "any:%d=999", number);
    if (software("softgpu_faults").faults(text) != 1) {
        exit(1);
    }
}

/* Ends the injection of faults. Returns how many calls have failed. */
static inline uint64_t end_faults(void)
{
    const uint64_t injected = software("softgpu_injected").injected();
    if (software("softgpu_faults").faults("") != 0) {
        exit(1);
    }
    return injected;
}

#endif
