/* Launches the project's own kernels (cuda-mem/src/driver/kernels/signal.cu) by driver calls, as a program does. */
#ifndef KERNELS_H
#define KERNELS_H

#include "test.h"

struct kernels {
    void *library;
    void *module;
    void *context;
};

/* Loads the PTX file that the environment variable SIGNAL_PTX names. */
struct kernels kernels_open(struct rig rig);

/* Runs one thread of a kernel. */
void kernels_launch(struct kernels kernels, const char *name, cudamem_stream stream, void **arguments);

void kernels_close(struct kernels kernels);

#endif
