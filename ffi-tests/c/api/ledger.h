/* Checks the software GPU's ledger at the end of a program, in C and C++. */
#ifndef LEDGER_H
#define LEDGER_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

/* Fails if the software GPU reports leaked objects or misuse. */
static inline void check_ledger(void)
{
    const char *name = getenv("CUDA_MEM_LIBCUDA");
    void *library = name ? dlopen(name, RTLD_NOW | RTLD_NOLOAD) : NULL;
    if (library == NULL) {
        return;
    }
    /* Converts dlsym's result to a function pointer; ISO C defines no cast for this. */
    union {
        void *address;
        size_t (*live)(void);
        char *(*report)(void);
    } function;
    function.address = dlsym(library, "softgpu_ledger_live");
    if (function.address != NULL) {
        size_t live = function.live();
        function.address = dlsym(library, "softgpu_ledger_report");
        char *report = function.report();
        if (live != 0) {
            fprintf(stderr, "left behind:\n%s\n", report);
            exit(1);
        }
        free(report);
        function.address = dlsym(library, "softgpu_misuse_report");
        char *misuse = function.report();
        if (misuse == NULL || misuse[0] != 0) {
            fprintf(stderr, "misused:\n%s\n", misuse ? misuse : "unknown");
            exit(1);
        }
        free(misuse);
    }
    dlclose(library);
}

#endif
