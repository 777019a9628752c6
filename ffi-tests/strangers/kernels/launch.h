/* What softgpu tells the code of a kernel: docs/guide/testing-without-a-gpu.md. */
#ifndef STRANGERS_LAUNCH_H
#define STRANGERS_LAUNCH_H

#include <stddef.h>

struct softgpu_launch {
    unsigned grid[3];
    unsigned block[3];
    unsigned shared;
    unsigned parameters;
    void *(*memory)(const struct softgpu_launch *launch, unsigned long long address, size_t size);
    int (*set_condition)(const struct softgpu_launch *launch, unsigned long long handle, unsigned value);
};

/* The value of a parameter. */
#define ARGUMENT(type, number) (*(type *)parameters[number])

/* An assertion that fails in a kernel ends the work of its context. Nothing is at address 0. */
#define EXPECT(condition) ((condition) ? (void)0 : (void)launch->memory(launch, 0, 1))

#endif
