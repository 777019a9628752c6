/*
 * libcudamem: memory shared by CPU and NVIDIA GPU, for C and C++.
 *
 * Every function that can fail returns a cudamem_status. The text of the calling thread's last failure is
 * cudamem_last_error_message(). All functions may be called from any thread.
 */
#ifndef CUDAMEM_H
#define CUDAMEM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The release of this header. cudamem_version_number() gives that of the library. */
#define CUDAMEM_VERSION_MAJOR 0
#define CUDAMEM_VERSION_MINOR 1
#define CUDAMEM_VERSION_PATCH 0
/** The release as one number, to be compared: major * 1000000 + minor * 1000 + patch. */
#define CUDAMEM_VERSION_NUMBER \
    (CUDAMEM_VERSION_MAJOR * 1000000 + CUDAMEM_VERSION_MINOR * 1000 + CUDAMEM_VERSION_PATCH)

/** What a function returns: one of the CUDAMEM_ constants below. Later releases may add values. */
typedef int32_t cudamem_status;

/** It worked. */
#define CUDAMEM_SUCCESS 0
/** An argument is null or out of its range. */
#define CUDAMEM_ERROR_INVALID_ARGUMENT 1
/** A library (the CUDA driver, vkgdr) was not found. */
#define CUDAMEM_ERROR_LOAD 2
/** The loaded library is too old for what was asked. */
#define CUDAMEM_ERROR_MISSING_SYMBOL 3
/** The CUDA driver refused; the message has its code. */
#define CUDAMEM_ERROR_DRIVER 4
/** The vkgdr library refused; the message has its words. */
#define CUDAMEM_ERROR_VKGDR 5
/** There is not enough memory. */
#define CUDAMEM_ERROR_OUT_OF_MEMORY 6
/** A range lies outside of its memory. */
#define CUDAMEM_ERROR_OUT_OF_RANGE 7
/** An offset or size is not the multiple that it must be. */
#define CUDAMEM_ERROR_MISALIGNED 8
/** The driver, the library or the device cannot do this. */
#define CUDAMEM_ERROR_UNSUPPORTED 9
/** A defect of libcudamem: the call was given up. Please report it with the message. */
#define CUDAMEM_ERROR_PANIC 10

/**
 * Gives the library's release as text, such as "0.1.0". The text is never freed.
 */
const char *cudamem_version(void);

/**
 * Gives the library's release as one number, to be compared with CUDAMEM_VERSION_NUMBER.
 */
uint32_t cudamem_version_number(void);

/**
 * Gives the name of a status, such as "CUDAMEM_ERROR_DRIVER"; for a value that this release does not know,
 * "CUDAMEM_ERROR_UNKNOWN". The text is never freed.
 */
const char *cudamem_status_name(cudamem_status status);

/**
 * Gives the message of the calling thread's last failure, or null if it had none. The text belongs to the library and
 * stays valid until the same thread's next call of a function that fails, or until the thread ends.
 */
const char *cudamem_last_error_message(void);

/**
 * Loads and initialises the CUDA driver, once for the process, and writes the CUDA release that it serves to *release:
 * 13000 for 13.0. CUDA_MEM_LIBCUDA in the environment names another library than the system's.
 *
 * @param release  where the release goes; not null
 * @return CUDAMEM_SUCCESS; CUDAMEM_ERROR_LOAD with every place that was looked at in the message;
 *         CUDAMEM_ERROR_DRIVER if the driver does not start; CUDAMEM_ERROR_INVALID_ARGUMENT if release is null
 */
cudamem_status cudamem_load(uint32_t *release);

#ifdef __cplusplus
}
#endif

#endif /* CUDAMEM_H */
