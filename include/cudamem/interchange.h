/*
 * libcudamem: exchange of arrays with other libraries: DLPack, array interfaces and Arrow.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * scripts/header generates this file from the library's sources.
 *
 * cudamem.h has the rules for all functions.
 */
#ifndef CUDAMEM_INTERCHANGE_H
#define CUDAMEM_INTERCHANGE_H

#include "../cudamem.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- DLPack ---------------------------------------------------------------------------------------------------------
 *
 * Exports views to other libraries and imports their tensors without a copy, as DLPack 1.3 defines it. This header
 * does not need dlpack.h; a program may include both, in any order.
 *
 * Order: an export is ordered before the consumer's stream; the call waits only if the consumer is the CPU. When the
 * consumer calls the deleter, the memory is reused or freed after the work then queued on its stream.
 *
 * Lifetime: memory that others use is never freed. Handles may be destroyed at any time; the deleter ends the
 * consumer's use.
 */

struct DLManagedTensor;
struct DLManagedTensorVersioned;

/** A flag of cudamem_dlpack_options: the consumer may only read. */
#define CUDAMEM_DLPACK_READ_ONLY 1
/** A flag of cudamem_dlpack_options: the consumer gets its own copy. */
#define CUDAMEM_DLPACK_COPY 2
/** A flag of cudamem_dlpack_options: fail where a copy would be needed. */
#define CUDAMEM_DLPACK_NO_COPY 4

/**
 * After the consumer calls the deleter, the memory waits for the work that the consumer's stream has by then. That
 * stream must live until the call.
 */
#define CUDAMEM_RELEASE_AFTER_STREAM 0
/** The memory is reused as soon as the consumer calls the deleter. The consumer's work must be done by then. */
#define CUDAMEM_RELEASE_IMMEDIATELY 1
/** The deleter waits for all work of the context: for consumers whose stream may be gone by then. */
#define CUDAMEM_RELEASE_AFTER_CONTEXT 2
/** How a view is exported. Zeros are the defaults. */
typedef struct {
    /** sizeof(cudamem_dlpack_options). */
    size_t size;
    /** CUDAMEM_DLPACK_... combined by |. */
    uint32_t flags;
    /** One of CUDAMEM_RELEASE_... . */
    int32_t release;
    /**
     * The consumer's stream, as DLPack names it: 1 is the legacy default stream, 2 the calling thread's, -1 requests
     * no order, others are a CUstream of the view's context. 0 is unspecified: device memory is then ordered before
     * the legacy default stream, and host memory is waited for.
     */
    int64_t stream;
    /** The resource that a copy is allocated from. The null handle if no copy is needed. */
    cudamem_resource resource;
    /**
     * The device that the consumer wants the memory on, as DLPack numbers it: kDLCPU is 1, kDLCUDA 2, kDLCUDAHost 3,
     * kDLCUDAManaged 13. 0 keeps the memory where it lies. Any other device needs a copy, except the CPU if it
     * addresses the memory.
     */
    int32_t device_type;
    /** The number of that device. */
    int32_t device_id;
} cudamem_dlpack_options;

/**
 * Exports a view to another library, in stream order: as a DLManagedTensorVersioned if tensor is not NULL, or as a
 * DLManagedTensor, for consumers that only know the layout before DLPack 1.0, if legacy is not NULL. One of the two
 * must be NULL. The consumer must call the tensor's deleter once. options may be NULL.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if a needed copy is forbidden or has no resource, if the view is not of a
 * buffer, or if its first element begins within a byte; for the old layout also if the view is read-only or has padded
 * elements, which that layout cannot express.
 */
cudamem_status cudamem_view_export_dlpack(cudamem_view view,
                                          const cudamem_dlpack_options *options,
                                          struct DLManagedTensorVersioned **tensor,
                                          struct DLManagedTensor **legacy);

/**
 * Makes a view of another library's tensor: of tensor, or of legacy for the layout before DLPack 1.0. The other must
 * be NULL. The library calls the tensor's deleter, on any thread, when the last view or buffer of the memory has
 * ended. On failure the tensor stays the program's, unchanged.
 *
 * stream becomes the memory's home stream. If producer is the null handle, the producer must already have ordered its
 * work before stream, as DLPack producers do for the stream that the consumer names, and the end of the memory waits
 * for its work. Otherwise stream waits for the producer's work so far, and at the end the producer's stream waits for
 * the memory's work, without blocking the CPU.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the tensor's numbers are invalid, if it comes from another major version
 * of DLPack or lies on another kind of device, or if the driver reports that the memory lies elsewhere.
 */
cudamem_status cudamem_view_import_dlpack(struct DLManagedTensorVersioned *tensor,
                                          struct DLManagedTensor *legacy,
                                          cudamem_stream stream,
                                          cudamem_stream producer,
                                          cudamem_view *view);

/* ---- Array interfaces -----------------------------------------------------------------------------------------------
 *
 * The CUDA array interface and numpy's array interface, as JSON, for programs that exchange arrays with Python
 * libraries: exports of version 3, imports of any version. They carry no ownership: an exporter keeps the view while
 * others use the array, and an importer keeps the array's owner alive.
 */

/** A flag of array interfaces: numpy's array interface, of memory that the CPU addresses, instead of CUDA's. */
#define CUDAMEM_ARRAY_INTERFACE_NUMPY 1
/** A flag of cudamem_view_import_array_interface: do not wait for the producer's stream. */
#define CUDAMEM_ARRAY_INTERFACE_ORDERED 2

/**
 * Gets the CUDA array interface of a view as JSON: the device's address, and the home stream, which the consumer's
 * stream must wait for. Does not wait. Record the consumer's work with cudamem_record_use.
 *
 * With CUDAMEM_ARRAY_INTERFACE_NUMPY, gets numpy's array interface: the CPU's address. Waits for the work on the
 * memory.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if devices, or the CPU, do not address the memory, if the CPU's memory needs
 * flushes, or if the type has no typestr.
 */
cudamem_status cudamem_view_export_array_interface(cudamem_view view, uint32_t flags, cudamem_text *json);

/**
 * Makes a view of another library's array that devices address, from its CUDA array interface as JSON. stream becomes
 * the memory's home stream, and waits for the stream that the interface names unless CUDAMEM_ARRAY_INTERFACE_ORDERED
 * is set. The memory must stay allocated until the library calls release with user, after the last view or buffer of
 * it has ended and its work is done, or until that point if release is NULL. After a failure the library does not call
 * release. With CUDAMEM_ARRAY_INTERFACE_NUMPY, the array lies in host memory, and the text is numpy's array interface.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the text is not an array interface, or if the driver does not know the
 * address as a device address.
 */
cudamem_status cudamem_view_import_array_interface(const char *json,
                                                   uint32_t flags,
                                                   cudamem_stream stream,
                                                   cudamem_release_callback release,
                                                   void *user,
                                                   cudamem_view *view);

/* ---- Arrow: schemas -------------------------------------------------------------------------------------------------
 *
 * A schema is the type of an Arrow array: the specification's letters for the type ("g" for doubles, "u" for text,
 * "+s" for structures), the field's name, and the children. This header does not need Arrow's; a program may include
 * both, in any order.
 */

struct ArrowSchema;

/** As the index of a child, of schemas and of arrays: the dictionary. */
#define CUDAMEM_ARROW_DICTIONARY SIZE_MAX

/** A flag of schemas: values may be missing. */
#define CUDAMEM_ARROW_NULLABLE 2



/** How a schema is made. Zeros are the defaults, except that format must be set. */
typedef struct {
    /** sizeof(cudamem_arrow_schema_options). */
    size_t size;
    /** The specification's letters for the type. Must not be NULL. */
    const char *format;
    /** The field's name, or NULL. */
    const char *name;
    /** CUDAMEM_ARROW_NULLABLE and other flags of the specification. */
    int64_t flags;
    /** The number of children. */
    size_t n_children;
    /** The children. The handles stay the program's. */
    const cudamem_arrow_schema *children;
    /** The type of the dictionary's values, or the null handle. The handle stays the program's. */
    cudamem_arrow_schema dictionary;
    /** The number of metadata pairs. */
    size_t n_metadata;
    /** The keys of the metadata. */
    const char *const *metadata_keys;
    /** The values of the metadata. */
    const char *const *metadata_values;
} cudamem_arrow_schema_options;

/** What a schema is. */
typedef struct {
    /** sizeof(cudamem_arrow_schema_info), set by the program. */
    size_t size;
    /** The specification's letters for the type, valid until the schema is destroyed. */
    const char *format;
    /** The field's name, valid until the schema is destroyed. Empty if the field has no name. */
    const char *name;
    /** CUDAMEM_ARROW_NULLABLE and other flags of the specification. */
    int64_t flags;
    /** The number of children. */
    size_t n_children;
    /** The number of dictionaries: 0 or 1. */
    size_t n_dictionaries;
    /** The number of metadata pairs. */
    size_t n_metadata;
} cudamem_arrow_schema_info;

/** Makes a schema. */
cudamem_status cudamem_arrow_schema_create(const cudamem_arrow_schema_options *options, cudamem_arrow_schema *schema);

/** Fills in the program's struct ArrowSchema. The consumer must call its release once. */
cudamem_status cudamem_arrow_schema_export(cudamem_arrow_schema schema, struct ArrowSchema *result);

/**
 * Reads a struct ArrowSchema, and releases it on success. On failure the struct is unchanged.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the schema was released, or if its numbers or texts are invalid.
 */
cudamem_status cudamem_arrow_schema_import(struct ArrowSchema *source, cudamem_arrow_schema *schema);

/** Describes a schema. Set info->size first. */
cudamem_status cudamem_arrow_schema_get_info(cudamem_arrow_schema schema, cudamem_arrow_schema_info *info);

/**
 * Gets a handle for a child's type, or for the type of the dictionary's values if index is CUDAMEM_ARROW_DICTIONARY.
 * The null handle if there is no dictionary.
 */
cudamem_status cudamem_arrow_schema_get_child(cudamem_arrow_schema schema, size_t index, cudamem_arrow_schema *child);

/**
 * Gets one metadata pair. Keys and values may hold any bytes, including zeros and invalid UTF-8. cudamem_text_get
 * returns their lengths.
 */
cudamem_status cudamem_arrow_schema_get_metadata(cudamem_arrow_schema schema,
                                                 size_t index,
                                                 cudamem_text *key,
                                                 cudamem_text *value);

/** Destroys the handle. The null handle is allowed. */
cudamem_status cudamem_arrow_schema_destroy(cudamem_arrow_schema schema);

/* ---- Arrow: arrays --------------------------------------------------------------------------------------------------
 *
 * Arrays of Arrow's C device data interface, whose buffers are buffers of this library. An exported array carries an
 * event (sync_event) that its consumer must wait for. Uses of an imported array are ordered after its producer's
 * event. The structs lie in host memory; only the buffers lie on the device.
 *
 * Arrow's release callback takes no stream. So call it after the consumer's work is done, or use
 * cudamem_arrow_array_destroy_after.
 */

struct ArrowDeviceArray;

/** How an array is made. Zeros are the defaults. */
typedef struct {
    /** sizeof(cudamem_arrow_array_options). */
    size_t size;
    /** The number of values. */
    uint64_t length;
    /** The number of missing values; -1 if it is unknown. */
    int64_t null_count;
    /** The number of values before the first one. */
    uint64_t offset;
    /** The number of buffers. */
    size_t n_buffers;
    /**
     * The buffers, in the order that the type defines; the null handle for an absent buffer, such as the validity of
     * an array without missing values. The handles stay the program's; the array shares ownership of the memory.
     */
    const cudamem_buffer *buffers;
    /** The number of children. */
    size_t n_children;
    /** The children, which cudamem_arrow_array_create made. The handles stay the program's. */
    const cudamem_arrow_array *children;
    /** The dictionary's values, or the null handle. The handle stays the program's. */
    cudamem_arrow_array dictionary;
} cudamem_arrow_array_options;

/** What an array is. */
typedef struct {
    /** sizeof(cudamem_arrow_array_info), set by the program. */
    size_t size;
    /** The number of values. */
    uint64_t length;
    /** The number of missing values; -1 if it is unknown. */
    int64_t null_count;
    /** The number of values before the first one. */
    uint64_t offset;
    /** The number of buffers. */
    size_t n_buffers;
    /** The number of children. */
    size_t n_children;
    /** The number of dictionaries: 0 or 1. */
    size_t n_dictionaries;
    /** The kind of device that the memory lies on, as DLPack numbers it. */
    int32_t device_type;
    /** The number of that device. */
    int32_t device_id;
} cudamem_arrow_array_info;

/**
 * Makes an array from buffers. The call does not check that the buffers suit the type.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if a number is out of range, or if the buffers lie on several devices.
 */
cudamem_status cudamem_arrow_array_create(const cudamem_arrow_array_options *options, cudamem_arrow_array *array);

/**
 * Fills in the program's struct ArrowDeviceArray. The consumer must call its release once, after its work is done. The
 * library records the event that the consumer waits for on stream, after all work on the buffers so far. If all
 * buffers lie in host memory, the call waits for that work instead.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT for an imported array.
 */
cudamem_status cudamem_arrow_array_export(cudamem_arrow_array array,
                                          cudamem_stream stream,
                                          struct ArrowDeviceArray *result);

/**
 * Takes over a struct ArrowDeviceArray. On success source counts as released, and the library calls the array's
 * release, on any thread, when its last handle and buffer have ended. On failure source stays unchanged.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the array was released, if its numbers are out of range, or if it lies on
 * another kind of device.
 */
cudamem_status cudamem_arrow_array_import(struct ArrowDeviceArray *source, cudamem_arrow_array *array);

/** Describes an array. Set info->size first. */
cudamem_status cudamem_arrow_array_get_info(cudamem_arrow_array array, cudamem_arrow_array_info *info);

/**
 * Gets a handle for a child, or for the dictionary's values if index is CUDAMEM_ARROW_DICTIONARY. It keeps the whole
 * array alive. The null handle if there is no dictionary.
 */
cudamem_status cudamem_arrow_array_get_child(cudamem_arrow_array array, size_t index, cudamem_arrow_array *child);

/**
 * Gets one of the buffers, or the null handle if it is absent. size is the buffer's size in bytes, which follows from
 * the type, because Arrow does not state it. For an array that this library made, it may be CUDAMEM_WHOLE_SIZE.
 *
 * For an imported array, stream becomes the buffer's home stream and waits for the producer's event. The program must
 * not write the memory.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if index is out of range, or if the driver reports that the memory lies
 * elsewhere.
 */
cudamem_status cudamem_arrow_array_get_buffer(cudamem_arrow_array array,
                                              size_t index,
                                              size_t size,
                                              cudamem_stream stream,
                                              cudamem_buffer *buffer);

/**
 * Destroys the handle. The library releases an imported array when its last handle and buffer are gone. The consumer's
 * work must be done by then. The null handle is allowed.
 */
cudamem_status cudamem_arrow_array_destroy(cudamem_arrow_array array);

/**
 * As cudamem_arrow_array_destroy, but the memory is reused only after the work that stream has now. If this library
 * made the array, an event orders the reuse; otherwise this call waits. Calls of other threads with an imported array
 * run before or after it.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if an imported array has other handles or buffers. The handle then stays
 * valid.
 */
cudamem_status cudamem_arrow_array_destroy_after(cudamem_arrow_array array, cudamem_stream stream);

/* ---- Arrow: streams of arrays ---------------------------------------------------------------------------------------
 *
 * An Arrow stream yields arrays of one type, one after the other. It is unrelated to a CUDA stream.
 */

struct ArrowDeviceArrayStream;

/**
 * Fills in the program's struct ArrowDeviceArrayStream, which yields count arrays one after the other. All arrays must
 * have the type schema and lie on one kind of device. The consumer must call its release once. The handles stay the
 * program's. stream is the CUDA stream on which the library records the arrays' events for consumers.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT for an imported array, or for arrays on several kinds of device.
 */
cudamem_status cudamem_arrow_stream_export(cudamem_arrow_schema schema,
                                           const cudamem_arrow_array *arrays,
                                           size_t count,
                                           cudamem_stream stream,
                                           struct ArrowDeviceArrayStream *result);

/**
 * Takes over a struct ArrowDeviceArrayStream. On success source counts as released. On failure it stays unchanged.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the stream was released, or lacks a function.
 */
cudamem_status cudamem_arrow_stream_import(struct ArrowDeviceArrayStream *source, cudamem_arrow_stream *arrow_stream);

/**
 * Gets the type of all arrays.
 *
 * Errors: as cudamem_arrow_stream_next.
 */
cudamem_status cudamem_arrow_stream_get_schema(cudamem_arrow_stream arrow_stream, cudamem_arrow_schema *schema);

/**
 * Gets the next array, or the null handle after the last one.
 *
 * Errors: the producer's error, as CUDAMEM_ERROR_INVALID_ARGUMENT with the producer's message.
 * CUDAMEM_ERROR_INVALID_ARGUMENT also while another call reads the stream: threads must take turns.
 */
cudamem_status cudamem_arrow_stream_next(cudamem_arrow_stream arrow_stream, cudamem_arrow_array *array);

/** Destroys the handle and releases the stream of arrays. Arrays that it yielded stay. The null handle is allowed. */
cudamem_status cudamem_arrow_stream_destroy(cudamem_arrow_stream arrow_stream);

#ifdef __cplusplus
}
#endif

#endif /* CUDAMEM_INTERCHANGE_H */
