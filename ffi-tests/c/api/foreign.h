/* The structs of DLPack 1.x and of Arrow's C device data interface, with the layout of their specifications, for a
 * program without dlpack.h and Arrow's headers. */
#ifndef FOREIGN_H
#define FOREIGN_H

#include <stdint.h>

struct tensor {
    void *data;
    struct {
        int32_t type, number;
    } device;
    int32_t ndim;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } type;
    int64_t *shape, *strides;
    uint64_t byte_offset;
};

struct DLManagedTensorVersioned {
    struct {
        uint32_t major, minor;
    } version;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensorVersioned *self);
    uint64_t flags;
    struct tensor tensor;
};

struct DLManagedTensor {
    struct tensor tensor;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensor *self);
};

enum { ON_CPU = 1, ON_CUDA = 2, ON_CUDA_HOST = 3, ON_CUDA_MANAGED = 13 };

struct ArrowSchema {
    const char *format, *name, *metadata;
    int64_t flags, n_children;
    struct ArrowSchema **children, *dictionary;
    void (*release)(struct ArrowSchema *self);
    void *private_data;
};

struct ArrowArray {
    int64_t length, null_count, offset, n_buffers, n_children;
    const void **buffers;
    struct ArrowArray **children, *dictionary;
    void (*release)(struct ArrowArray *self);
    void *private_data;
};

struct ArrowDeviceArray {
    struct ArrowArray array;
    int64_t device_id;
    int32_t device_type;
    void *sync_event;
    int64_t reserved[3];
};

struct ArrowDeviceArrayStream {
    int32_t device_type;
    int (*get_schema)(struct ArrowDeviceArrayStream *self, struct ArrowSchema *result);
    int (*get_next)(struct ArrowDeviceArrayStream *self, struct ArrowDeviceArray *result);
    const char *(*get_last_error)(struct ArrowDeviceArrayStream *self);
    void (*release)(struct ArrowDeviceArrayStream *self);
    void *private_data;
};

#endif
