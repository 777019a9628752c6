/*
 * libcudamem: arrays of any layout in memory, and copies between them.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * scripts/header generates this file from the library's sources.
 *
 * cudamem.h has the rules for all functions.
 */
#ifndef CUDAMEM_VIEWS_H
#define CUDAMEM_VIEWS_H

#include "../cudamem.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Types of elements ----------------------------------------------------------------------------------------------
 *
 * Element types that libraries exchange at run time, with DLPack's numbers: a code, the bits of one lane, and the
 * number of lanes, which is 1 except for vectors. CUDAMEM_FLOAT32, which is {CUDAMEM_TYPE_FLOAT, 32, 1}, and its like
 * are values of the usual types. A record of n bytes is {CUDAMEM_TYPE_OPAQUE, 8, n}.
 */

/** The type of elements of one lane, as a value. */
#ifdef __cplusplus
#define CUDAMEM_ELEMENT(code, bits) (cudamem_data_type{(code), (bits), 1})
#else
#define CUDAMEM_ELEMENT(code, bits) ((cudamem_data_type){(code), (bits), 1})
#endif
/** Booleans of 8 bits. */
#define CUDAMEM_BOOL CUDAMEM_ELEMENT(CUDAMEM_TYPE_BOOL, 8)
/** Signed integers of 8 bits. */
#define CUDAMEM_INT8 CUDAMEM_ELEMENT(CUDAMEM_TYPE_INT, 8)
/** Signed integers of 16 bits. */
#define CUDAMEM_INT16 CUDAMEM_ELEMENT(CUDAMEM_TYPE_INT, 16)
/** Signed integers of 32 bits. */
#define CUDAMEM_INT32 CUDAMEM_ELEMENT(CUDAMEM_TYPE_INT, 32)
/** Signed integers of 64 bits. */
#define CUDAMEM_INT64 CUDAMEM_ELEMENT(CUDAMEM_TYPE_INT, 64)
/** Unsigned integers of 8 bits. */
#define CUDAMEM_UINT8 CUDAMEM_ELEMENT(CUDAMEM_TYPE_UINT, 8)
/** Unsigned integers of 16 bits. */
#define CUDAMEM_UINT16 CUDAMEM_ELEMENT(CUDAMEM_TYPE_UINT, 16)
/** Unsigned integers of 32 bits. */
#define CUDAMEM_UINT32 CUDAMEM_ELEMENT(CUDAMEM_TYPE_UINT, 32)
/** Unsigned integers of 64 bits. */
#define CUDAMEM_UINT64 CUDAMEM_ELEMENT(CUDAMEM_TYPE_UINT, 64)
/** Floating-point numbers of 16 bits. */
#define CUDAMEM_FLOAT16 CUDAMEM_ELEMENT(CUDAMEM_TYPE_FLOAT, 16)
/** Floating-point numbers of 32 bits. */
#define CUDAMEM_FLOAT32 CUDAMEM_ELEMENT(CUDAMEM_TYPE_FLOAT, 32)
/** Floating-point numbers of 64 bits. */
#define CUDAMEM_FLOAT64 CUDAMEM_ELEMENT(CUDAMEM_TYPE_FLOAT, 64)
/** bfloat16 numbers of 16 bits. */
#define CUDAMEM_BFLOAT16 CUDAMEM_ELEMENT(CUDAMEM_TYPE_BFLOAT, 16)
/** Complex numbers of 64 bits. */
#define CUDAMEM_COMPLEX64 CUDAMEM_ELEMENT(CUDAMEM_TYPE_COMPLEX, 64)
/** Complex numbers of 128 bits. */
#define CUDAMEM_COMPLEX128 CUDAMEM_ELEMENT(CUDAMEM_TYPE_COMPLEX, 128)

/** Signed integers. */
#define CUDAMEM_TYPE_INT 0
/** Unsigned integers. */
#define CUDAMEM_TYPE_UINT 1
/** IEEE 754 floating-point numbers. */
#define CUDAMEM_TYPE_FLOAT 2
/** Opaque bytes. */
#define CUDAMEM_TYPE_OPAQUE 3
/** bfloat16: the upper half of a float. */
#define CUDAMEM_TYPE_BFLOAT 4
/** Complex numbers. The bits count both parts. */
#define CUDAMEM_TYPE_COMPLEX 5
/** Booleans. */
#define CUDAMEM_TYPE_BOOL 6
/** An 8-bit floating-point format; the suffix names it. */
#define CUDAMEM_TYPE_FLOAT8_E3M4 7
/** An 8-bit floating-point format; the suffix names it. */
#define CUDAMEM_TYPE_FLOAT8_E4M3 8
/** An 8-bit floating-point format; the suffix names it. */
#define CUDAMEM_TYPE_FLOAT8_E4M3B11FNUZ 9
/** An 8-bit floating-point format; the suffix names it. */
#define CUDAMEM_TYPE_FLOAT8_E4M3FN 10
/** An 8-bit floating-point format; the suffix names it. */
#define CUDAMEM_TYPE_FLOAT8_E4M3FNUZ 11
/** An 8-bit floating-point format; the suffix names it. */
#define CUDAMEM_TYPE_FLOAT8_E5M2 12
/** An 8-bit floating-point format; the suffix names it. */
#define CUDAMEM_TYPE_FLOAT8_E5M2FNUZ 13
/** An 8-bit power of two. */
#define CUDAMEM_TYPE_FLOAT8_E8M0FNU 14
/** A 6-bit floating-point format; the suffix names it. */
#define CUDAMEM_TYPE_FLOAT6_E2M3FN 15
/** A 6-bit floating-point format; the suffix names it. */
#define CUDAMEM_TYPE_FLOAT6_E3M2FN 16
/** A 4-bit floating-point format; the suffix names it. */
#define CUDAMEM_TYPE_FLOAT4_E2M1FN 17
/** A flag of cudamem_data_type_get_name: numpy's typestr instead of the name. */
#define CUDAMEM_NAME_TYPESTR 1
/** An element type, laid out as DLPack's DLDataType. */
typedef struct {
    /** One of CUDAMEM_TYPE_... . */
    uint8_t code;
    /** The bits of one lane. */
    uint8_t bits;
    /** The number of lanes of an element: 1, except for vectors. */
    uint16_t lanes;
} cudamem_data_type;

/**
 * Finds the type for a name ("float32", "bfloat16", "float8_e4m3fn", "float32x4") or for a numpy typestr ("<f4",
 * "|u1").
 */
cudamem_status cudamem_data_type_find(const char *name, cudamem_data_type *data_type);

/**
 * Gets the name of a type, as cudamem_data_type_find takes it. flags is 0 or CUDAMEM_NAME_TYPESTR.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if numpy has no such type.
 */
cudamem_status cudamem_data_type_get_name(cudamem_data_type data_type, uint32_t flags, cudamem_text *name);

/* ---- Views ----------------------------------------------------------------------------------------------------------
 *
 * A view is an array of any layout in memory: in a buffer's memory, whose ownership it shares, or in host memory. A
 * layout has an element type, extents and strides. A stride is the distance between neighbours along an axis, in
 * elements; it may be negative or 0. All elements must lie within the memory.
 *
 * int64_t shape[] = {-1, 640};
 * cudamem_view_layout layout = {0};
 * layout.size = sizeof layout;
 * layout.data_type = CUDAMEM_FLOAT32;
 * layout.ndim = 2;
 * layout.shape = shape;
 * cudamem_view_create(buffer, &layout, &view);
 *
 * For views of mapped memory, allocate buffers from its resource. A view never changes; functions for other layouts
 * make another view of the same memory. Elements smaller than a byte are packed: several share a byte, and the lowest
 * bits hold the first.
 */

/** The largest number of axes of a view. */
#define CUDAMEM_MAX_DIMENSIONS 64
/** A flag of views: the view is read-only. */
#define CUDAMEM_VIEW_READ_ONLY 1
/** A flag of views: each element smaller than a byte has bytes of its own. No effect on other elements. */
#define CUDAMEM_VIEW_PADDED 2
/** A flag of views: the elements are dense, and the first axis varies fastest, as in Fortran. */
#define CUDAMEM_VIEW_F_ORDER 4
/** A flag of cudamem_view_info: the elements are dense, and the last axis varies fastest, as in C. */
#define CUDAMEM_VIEW_C_ORDER 8
/** A flag of cudamem_view_info: the elements are dense, in some order of the axes. */
#define CUDAMEM_VIEW_DENSE 16
/** A flag of cudamem_view_info: no two elements share memory. */
#define CUDAMEM_VIEW_UNIQUE 32
/** The layout of a view. */
typedef struct {
    /** sizeof(cudamem_view_layout). */
    size_t size;
    /** The type of the elements. Must be set. */
    cudamem_data_type data_type;
    /** CUDAMEM_VIEW_READ_ONLY, _PADDED and _F_ORDER, combined by |. */
    uint32_t flags;
    /** The number of axes, at most CUDAMEM_MAX_DIMENSIONS. 0 describes an array of one element. */
    size_t ndim;
    /** The extents, ndim of them. Without strides one extent may be -1: it becomes as large as the memory allows. */
    const int64_t *shape;
    /** The strides in elements, ndim of them. NULL for dense elements, in C order, or in Fortran's order with the flag. */
    const int64_t *strides;
    /** The offset in the memory of the element with indices 0, in elements. */
    int64_t offset;
} cudamem_view_layout;

/** What a view is. */
typedef struct {
    /** sizeof(cudamem_view_info), set by the program. */
    size_t size;
    /** The type of the elements. */
    cudamem_data_type data_type;
    /** CUDAMEM_VIEW_... combined by |. */
    uint32_t flags;
    /** The number of axes. */
    size_t ndim;
    /** The extents, valid until the view is destroyed. */
    const int64_t *shape;
    /** The strides in elements, valid until the view is destroyed. */
    const int64_t *strides;
    /** The offset in the memory of the element with indices 0, in elements. */
    int64_t offset;
    /** The number of elements. */
    uint64_t elements;
    /** The size of the elements when dense, in bytes: what cudamem_view_read writes. */
    uint64_t dense_size;
    /**
     * The address of the element with indices 0 for kernels and for the driver (a CUdeviceptr); for host memory that
     * the driver does not know, its host address. Record work that uses the view with cudamem_record_use.
     */
    uint64_t device_pointer;
    /** The CPU's address of the element with indices 0; NULL if the CPU does not address the memory. */
    void *host_pointer;
    /** CUDAMEM_ACCESS_... combined by |. */
    uint32_t access;
    /** The ordinal of the device that the memory lies on; -1 for host memory. */
    int32_t device;
} cudamem_view_info;

/**
 * Makes a view of a buffer's memory, whose ownership it shares: the memory is freed when its last part is destroyed.
 * layout must not be NULL.
 *
 * Errors: CUDAMEM_ERROR_OUT_OF_RANGE if elements would lie outside of the buffer. CUDAMEM_ERROR_INVALID_ARGUMENT if
 * the layout is invalid.
 */
cudamem_status cudamem_view_create(cudamem_buffer buffer, const cudamem_view_layout *layout, cudamem_view *view);

/**
 * Makes a view of host memory that the driver need not know: size bytes at pointer. The memory must stay allocated
 * until the library calls release with user, after the last view of it has ended, or until that point if release is
 * NULL. Nothing else may write the memory while the view is read, or use it while the view is written. Copies with it
 * are done when their call returns. After a failure the library does not call release.
 *
 * For foreign memory of a device, first make a buffer of it: cudamem_buffer_borrow.
 */
cudamem_status cudamem_view_borrow_host(void *pointer,
                                        size_t size,
                                        const cudamem_view_layout *layout,
                                        cudamem_release_callback release,
                                        void *user,
                                        cudamem_view *view);

/** Describes a view. Set info->size first. */
cudamem_status cudamem_view_get_info(cudamem_view view, cudamem_view_info *info);

/**
 * Makes a buffer of the view's memory, for functions that take buffers. Both share ownership.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT for a view that is read-only, or that is of host memory without a buffer.
 */
cudamem_status cudamem_view_get_buffer(cudamem_view view, cudamem_buffer *buffer);

/**
 * Destroys the handle. If no other part of the memory is left, it is freed in order of its home stream. A failed free
 * goes to the callback of cudamem_set_drop_error_callback. The null handle is allowed.
 */
cudamem_status cudamem_view_destroy(cudamem_view view);

/* ---- Parts of views -------------------------------------------------------------------------------------------------
 *
 * Other layouts of the same elements, and parts of them. Nothing is copied: each function makes a new view of the same
 * memory, and leaves the original view unchanged. CUDAMEM_ERROR_INVALID_ARGUMENT means that no such layout exists.
 */

/** For start or end of a cudamem_index: where the axis begins or ends. */
#define CUDAMEM_INDEX_OPEN INT64_MIN
/** Selects a part of an axis, by Python's rules: negative numbers count from the end. */
typedef struct {
    /** The first index, or the only one. */
    int64_t start;
    /** The end, which is excluded. Ignored if step is 0. */
    int64_t end;
    /**
     * The distance from each index to the next; a negative step runs backwards. 0 selects the single index start and
     * removes the axis.
     */
    int64_t step;
} cudamem_index;

/**
 * Makes a view of the same elements, in C order, with another shape of ndim extents. One extent may be -1: it follows
 * from the others. Axes of extent 1 can be added and removed anywhere.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the number of elements differs, or if no strides express that shape: copy
 * the elements to a dense view first.
 */
cudamem_status cudamem_view_reshape(cudamem_view view, const int64_t *shape, size_t ndim, cudamem_view *result);

/**
 * Reorders the axes: axes has count entries and names each axis once. Negative numbers count from the end, so -1 is
 * the last axis.
 */
cudamem_status cudamem_view_permute(cudamem_view view, const int64_t *axes, size_t count, cudamem_view *result);

/**
 * Selects a part of each axis: indices has one entry for each of the first count axes, and the other axes stay whole.
 * A count of 0 makes a second handle for the same view.
 */
cudamem_status cudamem_view_slice(cudamem_view view, const cudamem_index *indices, size_t count, cudamem_view *result);

/**
 * Repeats axes of extent 1 and adds axes in front, without more memory: their strides are 0. Such a view can be read;
 * a copy to it is refused.
 */
cudamem_status cudamem_view_broadcast(cudamem_view view, const int64_t *shape, size_t ndim, cudamem_view *result);

/** Merges all neighbouring axes that form one run of memory. */
cudamem_status cudamem_view_flatten(cudamem_view view, cudamem_view *result);

/**
 * Makes a view of the same bytes as elements of another type: an axis of stride 1 gets fewer or more of them. A
 * negative axis counts from the end.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if neither element size divides the other, if an extent, a stride, the offset
 * or the address is not a multiple of the larger size, or if an element of either type is smaller than a byte.
 */
cudamem_status cudamem_view_repack(cudamem_view view, cudamem_data_type data_type, int64_t axis, cudamem_view *result);

/**
 * Makes a view of the whole memory of a view in another layout. If the original view is read-only or has padded
 * elements, so does the new view.
 *
 * Errors: CUDAMEM_ERROR_OUT_OF_RANGE if elements would lie outside of the memory.
 */
cudamem_status cudamem_view_with_layout(cudamem_view view, const cudamem_view_layout *layout, cudamem_view *result);

/** Makes a read-only view of the same elements. */
cudamem_status cudamem_view_make_read_only(cudamem_view view, cudamem_view *result);

/* ---- Copies of views ------------------------------------------------------------------------------------------------
 *
 * Copies between two views of one type and shape, whatever their layouts and wherever their memory lies, in stream
 * order: after all work on both memories so far, and before their later work. Nothing is converted.
 *
 * Copies between host and device are done when the call returns. Copies within devices are only queued. The options
 * can change either.
 */

/** A flag of cudamem_view_copy_options: return when the copy is done. */
#define CUDAMEM_VIEW_COPY_WAIT 1

/**
 * A flag of cudamem_view_copy_options: return when the copy is queued. Copies with host memory that the driver does
 * not know are waited for all the same.
 */
#define CUDAMEM_VIEW_COPY_NO_WAIT 2

/**
 * A flag of cudamem_view_copy_options: refuse a copy between devices that would go through the host
 * (CUDAMEM_ERROR_NO_ACCESS).
 */
#define CUDAMEM_VIEW_COPY_DIRECT 4
/** How views are copied. Zeros are the defaults. */
typedef struct {
    /** sizeof(cudamem_view_copy_options). */
    size_t size;
    /** CUDAMEM_VIEW_COPY_... . */
    uint32_t flags;
    /** Must be 0. */
    uint32_t reserved;
    /**
     * The stream that orders the copy, on the device of the destination, or otherwise of the source. The null handle
     * selects the memory's home stream.
     */
    cudamem_stream stream;
    /**
     * The resource for temporary memory, if some is needed: of the host or of the device, as the resource has it. The
     * null handle selects the heap, and the device's current pool.
     */
    cudamem_resource temporary;
} cudamem_view_copy_options;

/**
 * Copies the elements of source to view, which has the same type and shape. options may be NULL.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if types or shapes differ, if view is read-only or has elements that share
 * memory, or if the two overlap without being the same.
 */
cudamem_status cudamem_view_copy(cudamem_view view, cudamem_view source, const cudamem_view_copy_options *options);

/**
 * Copies size bytes of dense elements in C order from host memory to a view. Returns when the copy is done. options
 * may be NULL.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if size is not the dense_size of cudamem_view_info.
 */
cudamem_status cudamem_view_write(cudamem_view view,
                                  const void *source,
                                  size_t size,
                                  const cudamem_view_copy_options *options);

/**
 * Copies the elements of a view to size bytes of host memory, dense and in C order. Returns when the copy is done.
 * options may be NULL.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if size is not the dense_size of cudamem_view_info.
 */
cudamem_status cudamem_view_read(cudamem_view view,
                                 void *destination,
                                 size_t size,
                                 const cudamem_view_copy_options *options);

#ifdef __cplusplus
}
#endif

#endif /* CUDAMEM_VIEWS_H */
