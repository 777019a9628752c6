/*
 * cuda-sys: the memory side of the CUDA driver's C interface, written by hand.
 *
 * It needs no CUDA toolkit, only <stddef.h> and <stdint.h>. Every function carries the versioned name that the
 * driver's library exports, so that the meaning of a name never depends on a header's release. The sentence
 * "Since CUDA x.y." above a function is read by the generator: it is the release that brought this name with these
 * arguments, and the release with which cuGetProcAddress is asked for it.
 *
 * The conformance tests compare everything here with NVIDIA's own headers. CUDA_SYS_PROTOTYPES_ONLY leaves the types
 * out, so that the prototypes can be compiled against those.
 */
#ifndef CUDA_SYS_WRAPPER_H
#define CUDA_SYS_WRAPPER_H

#include <stddef.h>
#include <stdint.h>

#ifndef CUDA_SYS_PROTOTYPES_ONLY

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Handles and words ---- */

/** A device's ordinal, as cuDeviceGet gives it. */
typedef int CUdevice;
/** An address in a device's view of memory. */
typedef unsigned long long CUdeviceptr;
/** A 32-bit word for stream operations. */
typedef uint32_t cuuint32_t;
/** A 64-bit word for stream operations and pool attributes. */
typedef uint64_t cuuint64_t;

/** A context: a process's state on one device. */
typedef struct CUctx_st *CUcontext;
/** A stream: work done in order. */
typedef struct CUstream_st *CUstream;
/** An event: a point in a stream. */
typedef struct CUevent_st *CUevent;
/** A pool of memory, allocated in stream order. */
typedef struct CUmemPoolHandle_st *CUmemoryPool;
/** Memory that another API allocated. */
typedef struct CUextMemory_st *CUexternalMemory;
/** A semaphore that another API made. */
typedef struct CUextSemaphore_st *CUexternalSemaphore;
/** An array of texels; here only so that the copy descriptors have their size. */
typedef struct CUarray_st *CUarray;
/** A graph of work. */
typedef struct CUgraph_st *CUgraph;
/** A node of a graph. */
typedef struct CUgraphNode_st *CUgraphNode;
/** A reference-counted resource of the program, which graphs can hold. */
typedef struct CUuserObject_st *CUuserObject;
/** A graph made ready for launches. */
typedef struct CUgraphExec_st *CUgraphExec;
/** A context on some of a device's processors. */
typedef struct CUgreenCtx_st *CUgreenCtx;
/** Loaded device code. */
typedef struct CUmod_st *CUmodule;
/** A link of device code. */
typedef struct CUlinkState_st *CUlinkState;
/** A kernel of a module. */
typedef struct CUfunc_st *CUfunction;
/** Device code that is loaded into each context that uses it. */
typedef struct CUlib_st *CUlibrary;
/** A kernel of a library, without a context. */
typedef struct CUkern_st *CUkernel;
/** Physical memory made by cuMemCreate. */
typedef unsigned long long CUmemGenericAllocationHandle;

/** A host function run in stream order. */
typedef void (*CUhostFn)(void *userData);

/** The dynamic shared memory in bytes that a block of a size needs. */
typedef size_t (*CUoccupancyB2DSize)(int blockSize);

/** Size in bytes of an IPC handle. */
#define CU_IPC_HANDLE_SIZE 64
/** cuMemHostAlloc: pinned for every context. */
#define CU_MEMHOSTALLOC_PORTABLE 0x01
/** cuMemHostAlloc: mapped into the device's address space. */
#define CU_MEMHOSTALLOC_DEVICEMAP 0x02
/** cuMemHostAlloc: write-combined; slow to read by the CPU. */
#define CU_MEMHOSTALLOC_WRITECOMBINED 0x04
/** cuMemHostRegister: pinned for every context. */
#define CU_MEMHOSTREGISTER_PORTABLE 0x01
/** cuMemHostRegister: mapped into the device's address space. */
#define CU_MEMHOSTREGISTER_DEVICEMAP 0x02
/** cuMemHostRegister: the range is memory-mapped I/O of a device. */
#define CU_MEMHOSTREGISTER_IOMEMORY 0x04
/** cuMemHostRegister: the device only reads it. */
#define CU_MEMHOSTREGISTER_READ_ONLY 0x08
/** cuImportExternalMemory: a dedicated resource. */
#define CUDA_EXTERNAL_MEMORY_DEDICATED 0x1
/** cuMemPoolCreate: memory for hardware decompression. */
#define CU_MEM_POOL_CREATE_USAGE_HW_DECOMPRESS 0x2
/** cuMemCreate: memory for hardware decompression. */
#define CU_MEM_CREATE_USAGE_HW_DECOMPRESS 0x2
/** cuGraphConditionalHandleCreate: each launch begins with the default value. */
#define CU_GRAPH_COND_ASSIGN_DEFAULT 0x1
/** `extra` of a launch: the end of the list. */
#define CU_LAUNCH_PARAM_END_AS_INT 0x00
/** `extra` of a launch: the address of a buffer with all parameters follows. */
#define CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT 0x01
/** `extra` of a launch: the address of the buffer's size follows. */
#define CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT 0x02

/* ---- Enumerations ---- */

/** What every driver function returns. */
typedef enum cudaError_enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_INITIALIZED = 3,
    CUDA_ERROR_DEINITIALIZED = 4,
    CUDA_ERROR_PROFILER_DISABLED = 5,
    CUDA_ERROR_PROFILER_NOT_INITIALIZED = 6,
    CUDA_ERROR_PROFILER_ALREADY_STARTED = 7,
    CUDA_ERROR_PROFILER_ALREADY_STOPPED = 8,
    CUDA_ERROR_STUB_LIBRARY = 34,
    CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER = 36,
    CUDA_ERROR_DEVICE_UNAVAILABLE = 46,
    CUDA_ERROR_MULTICAST_RESOURCE_FULL = 47,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_INVALID_DEVICE = 101,
    CUDA_ERROR_DEVICE_NOT_LICENSED = 102,
    CUDA_ERROR_INVALID_IMAGE = 200,
    CUDA_ERROR_INVALID_CONTEXT = 201,
    CUDA_ERROR_CONTEXT_ALREADY_CURRENT = 202,
    CUDA_ERROR_MAP_FAILED = 205,
    CUDA_ERROR_UNMAP_FAILED = 206,
    CUDA_ERROR_ARRAY_IS_MAPPED = 207,
    CUDA_ERROR_ALREADY_MAPPED = 208,
    CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
    CUDA_ERROR_ALREADY_ACQUIRED = 210,
    CUDA_ERROR_NOT_MAPPED = 211,
    CUDA_ERROR_NOT_MAPPED_AS_ARRAY = 212,
    CUDA_ERROR_NOT_MAPPED_AS_POINTER = 213,
    CUDA_ERROR_ECC_UNCORRECTABLE = 214,
    CUDA_ERROR_UNSUPPORTED_LIMIT = 215,
    CUDA_ERROR_CONTEXT_ALREADY_IN_USE = 216,
    CUDA_ERROR_PEER_ACCESS_UNSUPPORTED = 217,
    CUDA_ERROR_INVALID_PTX = 218,
    CUDA_ERROR_INVALID_GRAPHICS_CONTEXT = 219,
    CUDA_ERROR_NVLINK_UNCORRECTABLE = 220,
    CUDA_ERROR_JIT_COMPILER_NOT_FOUND = 221,
    CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222,
    CUDA_ERROR_JIT_COMPILATION_DISABLED = 223,
    CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY = 224,
    CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC = 225,
    CUDA_ERROR_CONTAINED = 226,
    CUDA_ERROR_INSUFFICIENT_LOADER_VERSION = 227,
    CUDA_ERROR_INVALID_SOURCE = 300,
    CUDA_ERROR_FILE_NOT_FOUND = 301,
    CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND = 302,
    CUDA_ERROR_SHARED_OBJECT_INIT_FAILED = 303,
    CUDA_ERROR_OPERATING_SYSTEM = 304,
    CUDA_ERROR_INVALID_HANDLE = 400,
    CUDA_ERROR_ILLEGAL_STATE = 401,
    CUDA_ERROR_LOSSY_QUERY = 402,
    CUDA_ERROR_NOT_FOUND = 500,
    CUDA_ERROR_NOT_READY = 600,
    CUDA_ERROR_ILLEGAL_ADDRESS = 700,
    CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701,
    CUDA_ERROR_LAUNCH_TIMEOUT = 702,
    CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING = 703,
    CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED = 704,
    CUDA_ERROR_PEER_ACCESS_NOT_ENABLED = 705,
    CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE = 708,
    CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
    CUDA_ERROR_ASSERT = 710,
    CUDA_ERROR_TOO_MANY_PEERS = 711,
    CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
    CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713,
    CUDA_ERROR_HARDWARE_STACK_ERROR = 714,
    CUDA_ERROR_ILLEGAL_INSTRUCTION = 715,
    CUDA_ERROR_MISALIGNED_ADDRESS = 716,
    CUDA_ERROR_INVALID_ADDRESS_SPACE = 717,
    CUDA_ERROR_INVALID_PC = 718,
    CUDA_ERROR_LAUNCH_FAILED = 719,
    CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE = 720,
    CUDA_ERROR_TENSOR_MEMORY_LEAK = 721,
    CUDA_ERROR_NOT_PERMITTED = 800,
    CUDA_ERROR_NOT_SUPPORTED = 801,
    CUDA_ERROR_SYSTEM_NOT_READY = 802,
    CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803,
    CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE = 804,
    CUDA_ERROR_MPS_CONNECTION_FAILED = 805,
    CUDA_ERROR_MPS_RPC_FAILURE = 806,
    CUDA_ERROR_MPS_SERVER_NOT_READY = 807,
    CUDA_ERROR_MPS_MAX_CLIENTS_REACHED = 808,
    CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED = 809,
    CUDA_ERROR_MPS_CLIENT_TERMINATED = 810,
    CUDA_ERROR_CDP_NOT_SUPPORTED = 811,
    CUDA_ERROR_CDP_VERSION_MISMATCH = 812,
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
    CUDA_ERROR_STREAM_CAPTURE_MERGE = 902,
    CUDA_ERROR_STREAM_CAPTURE_UNMATCHED = 903,
    CUDA_ERROR_STREAM_CAPTURE_UNJOINED = 904,
    CUDA_ERROR_STREAM_CAPTURE_ISOLATION = 905,
    CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906,
    CUDA_ERROR_CAPTURED_EVENT = 907,
    CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD = 908,
    CUDA_ERROR_TIMEOUT = 909,
    CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE = 910,
    CUDA_ERROR_EXTERNAL_DEVICE = 911,
    CUDA_ERROR_INVALID_CLUSTER_SIZE = 912,
    CUDA_ERROR_FUNCTION_NOT_LOADED = 913,
    CUDA_ERROR_INVALID_RESOURCE_TYPE = 914,
    CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION = 915,
    CUDA_ERROR_KEY_ROTATION = 916,
    CUDA_ERROR_STREAM_DETACHED = 917,
    CUDA_ERROR_GRAPH_RECAPTURE_FAILURE = 918,
    CUDA_ERROR_FABRIC_NOT_READY = 919,
    CUDA_ERROR_UNKNOWN = 999
} CUresult;

/** A host function run in stream order, which is told the stream and its state. */
typedef void (*CUstreamCallback)(CUstream hStream, CUresult status, void *userData);

/** What cuDeviceGetAttribute can be asked. */
typedef enum CUdevice_attribute_enum {
    CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 1,
    CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X = 2,
    CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y = 3,
    CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z = 4,
    CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X = 5,
    CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y = 6,
    CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z = 7,
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK = 8,
    CU_DEVICE_ATTRIBUTE_SHARED_MEMORY_PER_BLOCK = 8,
    CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY = 9,
    CU_DEVICE_ATTRIBUTE_WARP_SIZE = 10,
    CU_DEVICE_ATTRIBUTE_MAX_PITCH = 11,
    CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK = 12,
    CU_DEVICE_ATTRIBUTE_REGISTERS_PER_BLOCK = 12,
    CU_DEVICE_ATTRIBUTE_CLOCK_RATE = 13,
    CU_DEVICE_ATTRIBUTE_GPU_OVERLAP = 15,
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
    CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT = 17,
    CU_DEVICE_ATTRIBUTE_INTEGRATED = 18,
    CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY = 19,
    CU_DEVICE_ATTRIBUTE_COMPUTE_MODE = 20,
    CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS = 31,
    CU_DEVICE_ATTRIBUTE_ECC_ENABLED = 32,
    CU_DEVICE_ATTRIBUTE_PCI_BUS_ID = 33,
    CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID = 34,
    CU_DEVICE_ATTRIBUTE_TCC_DRIVER = 35,
    CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE = 36,
    CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH = 37,
    CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE = 38,
    CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR = 39,
    CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT = 40,
    CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING = 41,
    CU_DEVICE_ATTRIBUTE_CAN_TEX2D_GATHER = 44,
    CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID = 50,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
    CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED = 78,
    CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED = 79,
    CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED = 80,
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR = 81,
    CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR = 82,
    CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY = 83,
    CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD = 84,
    CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD_GROUP_ID = 85,
    CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED = 86,
    CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO = 87,
    CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS = 88,
    CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS = 89,
    CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED = 90,
    CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM = 91,
    CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1 = 92,
    CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1 = 93,
    CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1 = 94,
    CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH = 95,
    CU_DEVICE_ATTRIBUTE_COOPERATIVE_MULTI_DEVICE_LAUNCH = 96,
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
    CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES = 98,
    CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED = 99,
    CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES = 100,
    CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST = 101,
    CU_DEVICE_ATTRIBUTE_VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED = 102,
    CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED = 102,
    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED = 103,
    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_WIN32_HANDLE_SUPPORTED = 104,
    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_WIN32_KMT_HANDLE_SUPPORTED = 105,
    CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR = 106,
    CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED = 107,
    CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE = 108,
    CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE = 109,
    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED = 110,
    CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK = 111,
    CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED = 112,
    CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED = 113,
    CU_DEVICE_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED = 114,
    CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED = 115,
    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED = 116,
    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS = 117,
    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING = 118,
    CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES = 119,
    CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH = 120,
    CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED = 121,
    CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS = 122,
    CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR = 123,
    CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED = 124,
    CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED = 125,
    CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT = 126,
    CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED = 127,
    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED = 128,
    CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS = 129,
    CU_DEVICE_ATTRIBUTE_NUMA_CONFIG = 130,
    CU_DEVICE_ATTRIBUTE_NUMA_ID = 131,
    CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED = 132,
    CU_DEVICE_ATTRIBUTE_MPS_ENABLED = 133,
    CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID = 134,
    CU_DEVICE_ATTRIBUTE_D3D12_CIG_SUPPORTED = 135,
    CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK = 136,
    CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_MAXIMUM_LENGTH = 137,
    CU_DEVICE_ATTRIBUTE_VULKAN_CIG_SUPPORTED = 138,
    CU_DEVICE_ATTRIBUTE_GPU_PCI_DEVICE_ID = 139,
    CU_DEVICE_ATTRIBUTE_GPU_PCI_SUBSYSTEM_ID = 140,
    CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED = 141,
    CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED = 142,
    CU_DEVICE_ATTRIBUTE_HOST_NUMA_MULTINODE_IPC_SUPPORTED = 143,
    CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED = 144,
    CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED = 145,
    CU_DEVICE_ATTRIBUTE_HOST_ALLOC_DMA_BUF_SUPPORTED = 146,
    CU_DEVICE_ATTRIBUTE_ONLY_PARTIAL_HOST_NATIVE_ATOMIC_SUPPORTED = 147,
    CU_DEVICE_ATTRIBUTE_ATOMIC_REDUCTION_SUPPORTED = 148,
    CU_DEVICE_ATTRIBUTE_LOCALITY_DOMAIN_COUNT = 149,
    CU_DEVICE_ATTRIBUTE_MAX_OVERSIZED_SHARED_MEMORY_PER_BLOCK = 150,
    CU_DEVICE_ATTRIBUTE_D3D12_CIG_STREAMS_SUPPORTED = 151,
    CU_DEVICE_ATTRIBUTE_DMA_BUF_MMAP_SUPPORTED = 152,
    CU_DEVICE_ATTRIBUTE_LOGICAL_ENDPOINT_UNICAST_SUPPORTED = 153,
    CU_DEVICE_ATTRIBUTE_LOGICAL_ENDPOINT_MULTICAST_SUPPORTED = 154,
    CU_DEVICE_ATTRIBUTE_LOGICAL_ENDPOINT_COUNTED_OPS_SUPPORTED = 155,
    CU_DEVICE_ATTRIBUTE_LOGICAL_ENDPOINT_UNICAST_ACCESS_ON_OWNER_DEVICE_SUPPORTED = 156,
    CU_DEVICE_ATTRIBUTE_LOCALITY_DOMAIN_MULTIPROCESSOR_COUNT = 157,
    CU_DEVICE_ATTRIBUTE_LOGICAL_ENDPOINT_SUPPORTED_HANDLE_TYPES = 158,
    CU_DEVICE_ATTRIBUTE_VULKAN_CIG_STREAMS_SUPPORTED = 159,
    CU_DEVICE_ATTRIBUTE_TENSOR_MAP_LARGE_TENSOR_MIN_SIZE = 160,
    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_LOCALIZED_MEMORY_SUPPORTED = 161
} CUdevice_attribute;

/** What cuDeviceGetP2PAttribute can be asked of a pair of devices. */
typedef enum CUdevice_P2PAttribute_enum {
    CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK = 1,
    CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED = 2,
    CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED = 3,
    CU_DEVICE_P2P_ATTRIBUTE_ACCESS_ACCESS_SUPPORTED = 4,
    CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED = 4,
    CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED = 5
} CUdevice_P2PAttribute;

/** Flags of a context. */
typedef enum CUctx_flags_enum {
    CU_CTX_SCHED_AUTO = 0x0,
    CU_CTX_SCHED_SPIN = 0x1,
    CU_CTX_SCHED_YIELD = 0x2,
    CU_CTX_SCHED_BLOCKING_SYNC = 0x4,
    CU_CTX_BLOCKING_SYNC = 0x4,
    CU_CTX_SCHED_MASK = 0x7,
    CU_CTX_MAP_HOST = 0x8,
    CU_CTX_LMEM_RESIZE_TO_MAX = 0x10,
    CU_CTX_COREDUMP_ENABLE = 0x20,
    CU_CTX_USER_COREDUMP_ENABLE = 0x40,
    CU_CTX_SYNC_MEMOPS = 0x80,
    CU_CTX_FLAGS_MASK = 0xff
} CUctx_flags;

/** What a context is given a part of. */
typedef enum CUexecAffinityType_enum {
    CU_EXEC_AFFINITY_TYPE_SM_COUNT = 0
} CUexecAffinityType;

/** What a context shares with a graphics API. */
typedef enum CUcigDataType_enum {
    CIG_DATA_TYPE_D3D12_COMMAND_QUEUE = 0x1,
    CIG_DATA_TYPE_NV_BLOB = 0x2
} CUcigDataType;

/** Limits of a context; sizes in bytes. */
typedef enum CUlimit_enum {
    CU_LIMIT_STACK_SIZE = 0x00,
    CU_LIMIT_PRINTF_FIFO_SIZE = 0x01,
    CU_LIMIT_MALLOC_HEAP_SIZE = 0x02,
    CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH = 0x03,
    CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT = 0x04,
    CU_LIMIT_MAX_L2_FETCH_GRANULARITY = 0x05,
    CU_LIMIT_PERSISTING_L2_CACHE_SIZE = 0x06,
    CU_LIMIT_SHMEM_SIZE = 0x07,
    CU_LIMIT_CIG_ENABLED = 0x08,
    CU_LIMIT_CIG_SHMEM_FALLBACK_ENABLED = 0x09,
    CU_LIMIT_PER_BLOCK_MEMORY_SIZE = 0x0A
} CUlimit;

/** Flags of a stream. */
typedef enum CUstream_flags_enum {
    CU_STREAM_DEFAULT = 0x0,
    CU_STREAM_NON_BLOCKING = 0x1
} CUstream_flags;

/** Flags of an event. */
typedef enum CUevent_flags_enum {
    CU_EVENT_DEFAULT = 0x0,
    CU_EVENT_BLOCKING_SYNC = 0x1,
    CU_EVENT_DISABLE_TIMING = 0x2,
    CU_EVENT_INTERPROCESS = 0x4
} CUevent_flags;

/** Flags of cuEventRecordWithFlags. */
typedef enum CUevent_record_flags_enum {
    CU_EVENT_RECORD_DEFAULT = 0x0,
    CU_EVENT_RECORD_EXTERNAL = 0x1
} CUevent_record_flags;

/** Flags of cuStreamWaitEvent. */
typedef enum CUevent_wait_flags_enum {
    CU_EVENT_WAIT_DEFAULT = 0x0,
    CU_EVENT_WAIT_EXTERNAL = 0x1
} CUevent_wait_flags;

/** How a stream compares the word that it waits for. */
typedef enum CUstreamWaitValue_flags_enum {
    CU_STREAM_WAIT_VALUE_GEQ = 0x0,
    CU_STREAM_WAIT_VALUE_EQ = 0x1,
    CU_STREAM_WAIT_VALUE_AND = 0x2,
    CU_STREAM_WAIT_VALUE_NOR = 0x3,
    CU_STREAM_WAIT_VALUE_FLUSH = 0x40000000
} CUstreamWaitValue_flags;

/** Flags of a word written by a stream. */
typedef enum CUstreamWriteValue_flags_enum {
    CU_STREAM_WRITE_VALUE_DEFAULT = 0x0,
    CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER = 0x1
} CUstreamWriteValue_flags;

/** How a stream waits for a host function. */
typedef enum CUhostTaskSyncMode_enum {
    CU_HOST_TASK_BLOCKING = 0x0,
    CU_HOST_TASK_SPINWAIT = 0x1
} CUhostTaskSyncMode;

/** Whether a stream records into a graph. */
typedef enum CUstreamCaptureStatus_enum {
    CU_STREAM_CAPTURE_STATUS_NONE = 0,
    CU_STREAM_CAPTURE_STATUS_ACTIVE = 1,
    CU_STREAM_CAPTURE_STATUS_INVALIDATED = 2
} CUstreamCaptureStatus;

/** Which calls a capture forbids to which threads. */
typedef enum CUstreamCaptureMode_enum {
    CU_STREAM_CAPTURE_MODE_GLOBAL = 0,
    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,
    CU_STREAM_CAPTURE_MODE_RELAXED = 2
} CUstreamCaptureMode;

/** The kind of memory that an address belongs to. */
typedef enum CUmemorytype_enum {
    CU_MEMORYTYPE_HOST = 1,
    CU_MEMORYTYPE_DEVICE = 2,
    CU_MEMORYTYPE_ARRAY = 3,
    CU_MEMORYTYPE_UNIFIED = 4
} CUmemorytype;

/** Who may touch managed memory. */
typedef enum CUmemAttach_flags_enum {
    CU_MEM_ATTACH_GLOBAL = 0x1,
    CU_MEM_ATTACH_HOST = 0x2,
    CU_MEM_ATTACH_SINGLE = 0x4
} CUmemAttach_flags;

/** Advice for managed memory. */
typedef enum CUmem_advise_enum {
    CU_MEM_ADVISE_SET_READ_MOSTLY = 1,
    CU_MEM_ADVISE_UNSET_READ_MOSTLY = 2,
    CU_MEM_ADVISE_SET_PREFERRED_LOCATION = 3,
    CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION = 4,
    CU_MEM_ADVISE_SET_ACCESSED_BY = 5,
    CU_MEM_ADVISE_UNSET_ACCESSED_BY = 6
} CUmem_advise;

/** What cuMemRangeGetAttribute can be asked. */
typedef enum CUmem_range_attribute_enum {
    CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY = 1,
    CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION = 2,
    CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY = 3,
    CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION = 4,
    CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE = 5,
    CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID = 6,
    CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE = 7,
    CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID = 8
} CUmem_range_attribute;

/** What cuPointerGetAttribute can be asked. */
typedef enum CUpointer_attribute_enum {
    CU_POINTER_ATTRIBUTE_CONTEXT = 1,
    CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
    CU_POINTER_ATTRIBUTE_DEVICE_POINTER = 3,
    CU_POINTER_ATTRIBUTE_HOST_POINTER = 4,
    CU_POINTER_ATTRIBUTE_P2P_TOKENS = 5,
    CU_POINTER_ATTRIBUTE_SYNC_MEMOPS = 6,
    CU_POINTER_ATTRIBUTE_BUFFER_ID = 7,
    CU_POINTER_ATTRIBUTE_IS_MANAGED = 8,
    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
    CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE = 10,
    CU_POINTER_ATTRIBUTE_RANGE_START_ADDR = 11,
    CU_POINTER_ATTRIBUTE_RANGE_SIZE = 12,
    CU_POINTER_ATTRIBUTE_MAPPED = 13,
    CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES = 14,
    CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE = 15,
    CU_POINTER_ATTRIBUTE_ACCESS_FLAGS = 16,
    CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE = 17,
    CU_POINTER_ATTRIBUTE_MAPPING_SIZE = 18,
    CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR = 19,
    CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID = 20,
    CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE = 21
} CUpointer_attribute;

/** The kind of place where memory lives. */
typedef enum CUmemLocationType_enum {
    CU_MEM_LOCATION_TYPE_INVALID = 0,
    CU_MEM_LOCATION_TYPE_NONE = 0,
    CU_MEM_LOCATION_TYPE_DEVICE = 1,
    CU_MEM_LOCATION_TYPE_HOST = 2,
    CU_MEM_LOCATION_TYPE_HOST_NUMA = 3,
    CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT = 4,
    CU_MEM_LOCATION_TYPE_INVISIBLE = 5,
    CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN = 6
} CUmemLocationType;

/** The kind of an allocation of a pool or of virtual memory. */
typedef enum CUmemAllocationType_enum {
    CU_MEM_ALLOCATION_TYPE_INVALID = 0,
    CU_MEM_ALLOCATION_TYPE_PINNED = 1,
    CU_MEM_ALLOCATION_TYPE_MANAGED = 2
} CUmemAllocationType;

/** The kind of handle by which memory is shared; a set of bits. */
typedef enum CUmemAllocationHandleType_enum {
    CU_MEM_HANDLE_TYPE_NONE = 0x0,
    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR = 0x1,
    CU_MEM_HANDLE_TYPE_WIN32 = 0x2,
    CU_MEM_HANDLE_TYPE_WIN32_KMT = 0x4,
    CU_MEM_HANDLE_TYPE_FABRIC = 0x8
} CUmemAllocationHandleType;

/** Compression of an allocation. */
typedef enum CUmemAllocationCompType_enum {
    CU_MEM_ALLOCATION_COMP_NONE = 0,
    CU_MEM_ALLOCATION_COMP_GENERIC = 1
} CUmemAllocationCompType;

/** What a place may do with memory. */
typedef enum CUmemAccess_flags_enum {
    CU_MEM_ACCESS_FLAGS_PROT_NONE = 0x0,
    CU_MEM_ACCESS_FLAGS_PROT_READ = 0x1,
    CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 0x3
} CUmemAccess_flags;

/** Which granularity is asked for. */
typedef enum CUmemAllocationGranularity_flags_enum {
    CU_MEM_ALLOC_GRANULARITY_MINIMUM = 0x0,
    CU_MEM_ALLOC_GRANULARITY_RECOMMENDED = 0x1
} CUmemAllocationGranularity_flags;

/** The kind of handle for an address range. */
typedef enum CUmemRangeHandleType_enum {
    CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD = 0x1
} CUmemRangeHandleType;

/** Attributes of a memory pool; sizes in bytes. */
typedef enum CUmemPool_attribute_enum {
    CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES = 1,
    CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC = 2,
    CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES = 3,
    CU_MEMPOOL_ATTR_RELEASE_THRESHOLD = 4,
    CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT = 5,
    CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH = 6,
    CU_MEMPOOL_ATTR_USED_MEM_CURRENT = 7,
    CU_MEMPOOL_ATTR_USED_MEM_HIGH = 8,
    CU_MEMPOOL_ATTR_ALLOCATION_TYPE = 9,
    CU_MEMPOOL_ATTR_EXPORT_HANDLE_TYPES = 10,
    CU_MEMPOOL_ATTR_LOCATION_ID = 11,
    CU_MEMPOOL_ATTR_LOCATION_TYPE = 12,
    CU_MEMPOOL_ATTR_MAX_POOL_SIZE = 13,
    CU_MEMPOOL_ATTR_HW_DECOMPRESS_ENABLED = 14,
    CU_MEMPOOL_ATTR_LOCALITY_DOMAIN_ID = 15
} CUmemPool_attribute;

/** Attributes of the memory that graphs hold; sizes in bytes. */
typedef enum CUgraphMem_attribute_enum {
    CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT = 0,
    CU_GRAPH_MEM_ATTR_USED_MEM_HIGH = 1,
    CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT = 2,
    CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH = 3
} CUgraphMem_attribute;

/** How an executable graph is made. */
typedef enum CUgraphInstantiate_flags_enum {
    CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH = 1,
    CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD = 2,
    CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH = 4,
    CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY = 8
} CUgraphInstantiate_flags;

/** Why an executable graph was not made. */
typedef enum CUgraphInstantiateResult_enum {
    CUDA_GRAPH_INSTANTIATE_SUCCESS = 0,
    CUDA_GRAPH_INSTANTIATE_ERROR = 1,
    CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE = 2,
    CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED = 3,
    CUDA_GRAPH_INSTANTIATE_MULTIPLE_CTXS_NOT_SUPPORTED = 4,
    CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED = 5
} CUgraphInstantiateResult;

/** What a node of a graph does. */
typedef enum CUgraphNodeType_enum {
    CU_GRAPH_NODE_TYPE_KERNEL = 0,
    CU_GRAPH_NODE_TYPE_MEMCPY = 1,
    CU_GRAPH_NODE_TYPE_MEMSET = 2,
    CU_GRAPH_NODE_TYPE_HOST = 3,
    CU_GRAPH_NODE_TYPE_GRAPH = 4,
    CU_GRAPH_NODE_TYPE_EMPTY = 5,
    CU_GRAPH_NODE_TYPE_WAIT_EVENT = 6,
    CU_GRAPH_NODE_TYPE_EVENT_RECORD = 7,
    CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL = 8,
    CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT = 9,
    CU_GRAPH_NODE_TYPE_MEM_ALLOC = 10,
    CU_GRAPH_NODE_TYPE_MEM_FREE = 11,
    CU_GRAPH_NODE_TYPE_BATCH_MEM_OP = 12,
    CU_GRAPH_NODE_TYPE_CONDITIONAL = 13
} CUgraphNodeType;

/** Why an executable graph was not updated. */
typedef enum CUgraphExecUpdateResult_enum {
    CU_GRAPH_EXEC_UPDATE_SUCCESS = 0x0,
    CU_GRAPH_EXEC_UPDATE_ERROR = 0x1,
    CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED = 0x2,
    CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED = 0x3,
    CU_GRAPH_EXEC_UPDATE_ERROR_FUNCTION_CHANGED = 0x4,
    CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED = 0x5,
    CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED = 0x6,
    CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE = 0x7,
    CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED = 0x8
} CUgraphExecUpdateResult;

/** Flags of a user object. */
typedef enum CUuserObject_flags_enum {
    CU_USER_OBJECT_NO_DESTRUCTOR_SYNC = 1
} CUuserObject_flags;

/** Flags of cuGraphRetainUserObject. */
typedef enum CUuserObjectRetain_flags_enum {
    CU_GRAPH_USER_OBJECT_MOVE = 1
} CUuserObjectRetain_flags;

/** Flags of one copy of a batch. */
typedef enum CUmemcpyFlags_enum {
    CU_MEMCPY_FLAG_DEFAULT = 0,
    CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE = 1
} CUmemcpyFlags;

/** When the source of a copy of a batch may be read. */
typedef enum CUmemcpySrcAccessOrder_enum {
    CU_MEMCPY_SRC_ACCESS_ORDER_INVALID = 0,
    CU_MEMCPY_SRC_ACCESS_ORDER_STREAM = 1,
    CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL = 2,
    CU_MEMCPY_SRC_ACCESS_ORDER_ANY = 3
} CUmemcpySrcAccessOrder;

/** Flags of cuIpcOpenMemHandle. */
typedef enum CUipcMem_flags_enum {
    CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS = 0x1
} CUipcMem_flags;

/** The kind of handle of memory that another API made. */
typedef enum CUexternalMemoryHandleType_enum {
    CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD = 1,
    CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_WIN32 = 2,
    CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_WIN32_KMT = 3,
    CU_EXTERNAL_MEMORY_HANDLE_TYPE_D3D12_HEAP = 4,
    CU_EXTERNAL_MEMORY_HANDLE_TYPE_D3D12_RESOURCE = 5,
    CU_EXTERNAL_MEMORY_HANDLE_TYPE_D3D11_RESOURCE = 6,
    CU_EXTERNAL_MEMORY_HANDLE_TYPE_D3D11_RESOURCE_KMT = 7,
    CU_EXTERNAL_MEMORY_HANDLE_TYPE_NVSCIBUF = 8,
    CU_EXTERNAL_MEMORY_HANDLE_TYPE_DMABUF_FD = 9
} CUexternalMemoryHandleType;

/** The kind of handle of a semaphore that another API made. */
typedef enum CUexternalSemaphoreHandleType_enum {
    CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD = 1,
    CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_WIN32 = 2,
    CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_WIN32_KMT = 3,
    CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_D3D12_FENCE = 4,
    CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_D3D11_FENCE = 5,
    CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_NVSCISYNC = 6,
    CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_D3D11_KEYED_MUTEX = 7,
    CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_D3D11_KEYED_MUTEX_KMT = 8,
    CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD = 9,
    CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_WIN32 = 10
} CUexternalSemaphoreHandleType;

/** Flags of cuGetProcAddress. */
typedef enum CUdriverProcAddress_flags_enum {
    CU_GET_PROC_ADDRESS_DEFAULT = 0x0,
    CU_GET_PROC_ADDRESS_LEGACY_STREAM = 0x1,
    CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM = 0x2
} CUdriverProcAddress_flags;

/** Why cuGetProcAddress found nothing. */
typedef enum CUdriverProcAddressQueryResult_enum {
    CU_GET_PROC_ADDRESS_SUCCESS = 0,
    CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND = 1,
    CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT = 2
} CUdriverProcAddressQueryResult;

/** Attributes of a kernel; sizes in bytes. */
typedef enum CUfunction_attribute_enum {
    CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0,
    CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1,
    CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES = 2,
    CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES = 3,
    CU_FUNC_ATTRIBUTE_NUM_REGS = 4,
    CU_FUNC_ATTRIBUTE_PTX_VERSION = 5,
    CU_FUNC_ATTRIBUTE_BINARY_VERSION = 6,
    CU_FUNC_ATTRIBUTE_CACHE_MODE_CA = 7,
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
    CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT = 9,
    CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET = 10,
    CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH = 11,
    CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT = 12,
    CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH = 13,
    CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14,
    CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE = 15
} CUfunction_attribute;

/** What a kernel prefers its fast memory for. */
typedef enum CUfunc_cache_enum {
    CU_FUNC_CACHE_PREFER_NONE = 0x00,
    CU_FUNC_CACHE_PREFER_SHARED = 0x01,
    CU_FUNC_CACHE_PREFER_L1 = 0x02,
    CU_FUNC_CACHE_PREFER_EQUAL = 0x03
} CUfunc_cache;

/** When the kernels of a module are loaded. */
typedef enum CUmoduleLoadingMode_enum {
    CU_MODULE_EAGER_LOADING = 0x1,
    CU_MODULE_LAZY_LOADING = 0x2
} CUmoduleLoadingMode;

/** Whether a kernel is loaded. */
typedef enum CUfunctionLoadingState_enum {
    CU_FUNCTION_LOADING_STATE_UNLOADED = 0,
    CU_FUNCTION_LOADING_STATE_LOADED = 1
} CUfunctionLoadingState;

/** Options of loading; only those for texts that tell what went wrong. */
typedef enum CUjit_option_enum {
    CU_JIT_INFO_LOG_BUFFER = 3,
    CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES = 4,
    CU_JIT_ERROR_LOG_BUFFER = 5,
    CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6
} CUjit_option;

/** Attributes of launches; those that nodes of graphs have too. */
typedef enum CUlaunchAttributeID_enum {
    CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW = 1,
    CU_LAUNCH_ATTRIBUTE_COOPERATIVE = 2,
    CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION = 4,
    CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE = 5,
    CU_LAUNCH_ATTRIBUTE_PRIORITY = 8,
    CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP = 9,
    CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN = 10
} CUlaunchAttributeID;

/** What is added to a link. */
typedef enum CUjitInputType_enum {
    CU_JIT_INPUT_CUBIN = 0,
    CU_JIT_INPUT_PTX = 1,
    CU_JIT_INPUT_FATBINARY = 2,
    CU_JIT_INPUT_OBJECT = 3,
    CU_JIT_INPUT_LIBRARY = 4
} CUjitInputType;

/** Options of a library. */
typedef enum CUlibraryOption_enum {
    CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE = 0,
    CU_LIBRARY_BINARY_IS_PRESERVED = 1
} CUlibraryOption;

/** Which body a conditional node of a graph does. */
typedef enum CUgraphConditionalNodeType_enum {
    CU_GRAPH_COND_TYPE_IF = 0,
    CU_GRAPH_COND_TYPE_WHILE = 1,
    CU_GRAPH_COND_TYPE_SWITCH = 2
} CUgraphConditionalNodeType;

/** Flags of the functions on occupancy. */
typedef enum CUoccupancy_flags_enum {
    CU_OCCUPANCY_DEFAULT = 0x0,
    CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE = 0x1
} CUoccupancy_flags;

/** How a capture's dependencies change. */
typedef enum CUstreamUpdateCaptureDependencies_flags_enum {
    CU_STREAM_ADD_CAPTURE_DEPENDENCIES = 0x0,
    CU_STREAM_SET_CAPTURE_DEPENDENCIES = 0x1
} CUstreamUpdateCaptureDependencies_flags;

/* ---- Structures ---- */

/** A device's identity. */
typedef struct CUuuid_st {
    char bytes[16];
} CUuuid;

/** How many of a device's processors a context may use. */
typedef struct CUexecAffinitySmCount_st {
    unsigned int val;
} CUexecAffinitySmCount;

/** The part of a device that a context may use. */
typedef struct CUexecAffinityParam_st {
    CUexecAffinityType type;
    union {
        CUexecAffinitySmCount smCount;
    } param;
} CUexecAffinityParam;

/** What a context shares with a graphics API. */
typedef struct CUctxCigParam_st {
    CUcigDataType sharedDataType;
    void *sharedData;
} CUctxCigParam;

/** How a context is made: with a part of the device, or for a graphics API. */
typedef struct CUctxCreateParams_st {
    CUexecAffinityParam *execAffinityParams;
    int numExecAffinityParams;
    CUctxCigParam *cigParams;
} CUctxCreateParams;

/** An edge of a graph: which part of one node comes before which part of the next; all zero for whole nodes. */
typedef struct CUgraphEdgeData_st {
    unsigned char from_port;
    unsigned char to_port;
    unsigned char type;
    unsigned char reserved[5];
} CUgraphEdgeData;

/** How an executable graph is made, and what became of that. */
typedef struct CUDA_GRAPH_INSTANTIATE_PARAMS_st {
    cuuint64_t flags;
    CUstream hUploadStream;
    CUgraphNode hErrNode_out;
    CUgraphInstantiateResult result_out;
} CUDA_GRAPH_INSTANTIATE_PARAMS;

/** A place where memory lives: a kind, and the device or NUMA node. */
typedef struct CUmemLocation_st {
    CUmemLocationType type;
    int id;
} CUmemLocation;

/** What a place may do with memory. */
typedef struct CUmemAccessDesc_st {
    CUmemLocation location;
    CUmemAccess_flags flags;
} CUmemAccessDesc;

/** Properties of a memory pool; zero what is not set. `maxSize` in bytes, 0 for no limit. */
typedef struct CUmemPoolProps_st {
    CUmemAllocationType allocType;
    CUmemAllocationHandleType handleTypes;
    CUmemLocation location;
    void *win32SecurityAttributes;
    size_t maxSize;
    unsigned short usage;
    unsigned char reserved[54];
} CUmemPoolProps;

/** A pointer of a pool on its way to another process. */
typedef struct CUmemPoolPtrExportData_st {
    unsigned char reserved[64];
} CUmemPoolPtrExportData;

/** Properties of physical memory made by cuMemCreate; zero what is not set. */
typedef struct CUmemAllocationProp_st {
    CUmemAllocationType type;
    CUmemAllocationHandleType requestedHandleTypes;
    CUmemLocation location;
    void *win32HandleMetaData;
    struct {
        unsigned char compressionType;
        unsigned char gpuDirectRDMACapable;
        unsigned short usage;
        unsigned char reserved[4];
    } allocFlags;
} CUmemAllocationProp;

/** A handle by which memory is shared across the nodes of a fabric. */
typedef struct CUmemFabricHandle_st {
    unsigned char data[CU_IPC_HANDLE_SIZE];
} CUmemFabricHandle;

/** A 2D copy; pitches and widths in bytes, heights in rows. */
typedef struct CUDA_MEMCPY2D_st {
    size_t srcXInBytes;
    size_t srcY;
    CUmemorytype srcMemoryType;
    const void *srcHost;
    CUdeviceptr srcDevice;
    CUarray srcArray;
    size_t srcPitch;
    size_t dstXInBytes;
    size_t dstY;
    CUmemorytype dstMemoryType;
    void *dstHost;
    CUdeviceptr dstDevice;
    CUarray dstArray;
    size_t dstPitch;
    size_t WidthInBytes;
    size_t Height;
} CUDA_MEMCPY2D;

/** A fill by a node of a graph: `width` words of `elementSize` bytes in each of `height` rows. */
typedef struct CUDA_MEMSET_NODE_PARAMS_st {
    CUdeviceptr dst;
    size_t pitch;
    unsigned int value;
    unsigned int elementSize;
    size_t width;
    size_t height;
} CUDA_MEMSET_NODE_PARAMS;

/** A host function run by a node of a graph. */
typedef struct CUDA_HOST_NODE_PARAMS_st {
    CUhostFn fn;
    void *userData;
} CUDA_HOST_NODE_PARAMS;

/** An allocation by a node of a graph; receives the address. */
typedef struct CUDA_MEM_ALLOC_NODE_PARAMS_v1_st {
    CUmemPoolProps poolProps;
    const CUmemAccessDesc *accessDescs;
    size_t accessDescCount;
    size_t bytesize;
    CUdeviceptr dptr;
} CUDA_MEM_ALLOC_NODE_PARAMS;

/** A launch by a node of a graph: `func` or `kern`, which belongs to `ctx` or to the current context. */
typedef struct CUDA_KERNEL_NODE_PARAMS_v2_st {
    CUfunction func;
    unsigned int gridDimX;
    unsigned int gridDimY;
    unsigned int gridDimZ;
    unsigned int blockDimX;
    unsigned int blockDimY;
    unsigned int blockDimZ;
    unsigned int sharedMemBytes;
    void **kernelParams;
    void **extra;
    CUkernel kern;
    CUcontext ctx;
} CUDA_KERNEL_NODE_PARAMS_v2;

/** A value that kernels set and conditional nodes read. */
typedef cuuint64_t CUgraphConditionalHandle;

/** A conditional node: `phGraph_out` receives the addresses of `size` bodies. */
typedef struct CUDA_CONDITIONAL_NODE_PARAMS {
    CUgraphConditionalHandle handle;
    CUgraphConditionalNodeType type;
    unsigned int size;
    CUgraph *phGraph_out;
    CUcontext ctx;
} CUDA_CONDITIONAL_NODE_PARAMS;

/** A node of any kind: its type, 12 bytes, the parameters of that type. Releases add kinds, so it has no fields here. */
struct CUgraphNodeParams_st;

/** The value of an attribute. Releases add members, so it has none here. */
union CUlaunchAttributeValue_union;

/** An attribute of a launch: its number, and at byte 8 the value. Releases add values, so it has no fields here. */
struct CUlaunchAttribute_st;

/** The shape, the stream and the attributes of a launch. */
typedef struct CUlaunchConfig_st {
    unsigned int gridDimX;
    unsigned int gridDimY;
    unsigned int gridDimZ;
    unsigned int blockDimX;
    unsigned int blockDimY;
    unsigned int blockDimZ;
    unsigned int sharedMemBytes;
    CUstream hStream;
    struct CUlaunchAttribute_st *attrs;
    unsigned int numAttrs;
} CUlaunchConfig;

/** What became of an update: the result, and the node or edge that prevented it. */
typedef struct CUgraphExecUpdateResultInfo_st {
    CUgraphExecUpdateResult result;
    CUgraphNode errorNode;
    CUgraphNode errorFromNode;
} CUgraphExecUpdateResultInfo;

/** A copy of planes: rows, one plane after the other; pitches in bytes, heights in rows. */
typedef struct CUDA_MEMCPY3D_st {
    size_t srcXInBytes;
    size_t srcY;
    size_t srcZ;
    size_t srcLOD;
    CUmemorytype srcMemoryType;
    const void *srcHost;
    CUdeviceptr srcDevice;
    CUarray srcArray;
    void *reserved0;
    size_t srcPitch;
    size_t srcHeight;
    size_t dstXInBytes;
    size_t dstY;
    size_t dstZ;
    size_t dstLOD;
    CUmemorytype dstMemoryType;
    void *dstHost;
    CUdeviceptr dstDevice;
    CUarray dstArray;
    void *reserved1;
    size_t dstPitch;
    size_t dstHeight;
    size_t WidthInBytes;
    size_t Height;
    size_t Depth;
} CUDA_MEMCPY3D;

/** How the copies of a batch may be done. */
typedef struct CUmemcpyAttributes_st {
    CUmemcpySrcAccessOrder srcAccessOrder;
    CUmemLocation srcLocHint;
    CUmemLocation dstLocHint;
    unsigned int flags;
} CUmemcpyAttributes;

/** An allocation on its way to another process. */
typedef struct CUipcMemHandle_st {
    char reserved[CU_IPC_HANDLE_SIZE];
} CUipcMemHandle;

/** An event on its way to another process. */
typedef struct CUipcEventHandle_st {
    char reserved[CU_IPC_HANDLE_SIZE];
} CUipcEventHandle;

/** Memory of another API, to be imported; `size` in bytes. */
typedef struct CUDA_EXTERNAL_MEMORY_HANDLE_DESC_st {
    CUexternalMemoryHandleType type;
    union {
        int fd;
        struct {
            void *handle;
            const void *name;
        } win32;
        const void *nvSciBufObject;
    } handle;
    unsigned long long size;
    unsigned int flags;
    unsigned int reserved[16];
} CUDA_EXTERNAL_MEMORY_HANDLE_DESC;

/** A range of imported memory; `offset` and `size` in bytes. */
typedef struct CUDA_EXTERNAL_MEMORY_BUFFER_DESC_st {
    unsigned long long offset;
    unsigned long long size;
    unsigned int flags;
    unsigned int reserved[16];
} CUDA_EXTERNAL_MEMORY_BUFFER_DESC;

/** A semaphore of another API, to be imported. */
typedef struct CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC_st {
    CUexternalSemaphoreHandleType type;
    union {
        int fd;
        struct {
            void *handle;
            const void *name;
        } win32;
        const void *nvSciSyncObj;
    } handle;
    unsigned int flags;
    unsigned int reserved[16];
} CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC;

/** How an imported semaphore is signalled. */
typedef struct CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS_st {
    struct {
        struct {
            unsigned long long value;
        } fence;
        union {
            void *fence;
            unsigned long long reserved;
        } nvSciSync;
        struct {
            unsigned long long key;
        } keyedMutex;
        unsigned int reserved[12];
    } params;
    unsigned int flags;
    unsigned int reserved[16];
} CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS;

/** How an imported semaphore is waited for; `timeoutMs` in milliseconds. */
typedef struct CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS_st {
    struct {
        struct {
            unsigned long long value;
        } fence;
        union {
            void *fence;
            unsigned long long reserved;
        } nvSciSync;
        struct {
            unsigned long long key;
            unsigned int timeoutMs;
        } keyedMutex;
        unsigned int reserved[10];
    } params;
    unsigned int flags;
    unsigned int reserved[16];
} CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS;

#ifdef __cplusplus
}
#endif

#endif /* CUDA_SYS_PROTOTYPES_ONLY */

#ifdef __cplusplus
extern "C" {
#endif

/* ---- The driver ---- */

/** Starts the driver in this process; `Flags` is 0. Every other call needs it. Since CUDA 2.0. */
CUresult cuInit(unsigned int Flags);

/** Gives the newest CUDA release that the driver serves, 13000 for 13.0. Since CUDA 2.2. */
CUresult cuDriverGetVersion(int *driverVersion);

/** Gives the name of an error code. Since CUDA 6.0. */
CUresult cuGetErrorName(CUresult error, const char **pStr);

/** Gives a sentence on an error code. Since CUDA 6.0. */
CUresult cuGetErrorString(CUresult error, const char **pStr);

/** Finds a function by its name without suffix and the release whose form of it is wanted. Since CUDA 11.3. */
CUresult cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags);

/** As cuGetProcAddress, and tells why nothing was found. Since CUDA 12.0. */
CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
    CUdriverProcAddressQueryResult *symbolStatus);

/** Gives one of the private tables that NVIDIA's own libraries use. Since CUDA 3.0. */
CUresult cuGetExportTable(const void **ppExportTable, const CUuuid *pExportTableId);

/* ---- Devices ---- */

/** Gives the device of an ordinal. Since CUDA 2.0. */
CUresult cuDeviceGet(CUdevice *device, int ordinal);

/** Counts the devices. Since CUDA 2.0. */
CUresult cuDeviceGetCount(int *count);

/** Writes the device's name, cut to `len` bytes and ended with a zero. Since CUDA 2.0. */
CUresult cuDeviceGetName(char *name, int len, CUdevice dev);

/** Gives the identity of the GPU. Since CUDA 9.2. */
CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice dev);

/** Gives the identity of the GPU, or of the MIG instance. Since CUDA 11.4. */
CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev);

/** Gives the size of the device's memory in bytes. Since CUDA 3.2. */
CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev);

/** Gives an attribute of the device. Since CUDA 2.0. */
CUresult cuDeviceGetAttribute(int *pi, CUdevice_attribute attrib, CUdevice dev);

/** Writes the device's PCI address, as domain:bus:device.function. Since CUDA 4.1. */
CUresult cuDeviceGetPCIBusId(char *pciBusId, int len, CUdevice dev);

/** Finds a device by its PCI address. Since CUDA 4.1. */
CUresult cuDeviceGetByPCIBusId(CUdevice *dev, const char *pciBusId);

/** Tells whether one device can address another's memory. Since CUDA 4.0. */
CUresult cuDeviceCanAccessPeer(int *canAccessPeer, CUdevice dev, CUdevice peerDev);

/** Gives an attribute of a pair of devices. Since CUDA 8.0. */
CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attrib, CUdevice srcDevice, CUdevice dstDevice);

/** Gives the pool that the device always has. Since CUDA 11.2. */
CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool_out, CUdevice dev);

/** Gives the pool that cuMemAllocAsync draws from. Since CUDA 11.2. */
CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice dev);

/** Sets the pool that cuMemAllocAsync draws from. Since CUDA 11.2. */
CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool);

/* ---- Contexts ---- */

/** Counts one more user of the device's primary context, which the CUDA runtime uses too. Since CUDA 7.0. */
CUresult cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev);

/** Counts one user less; the last one ends the context. Since CUDA 11.0. */
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev);

/** Tells whether the primary context is alive, and its flags. Since CUDA 7.0. */
CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active);

/** Sets the flags of the primary context. Since CUDA 11.0. */
CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags);

/** Destroys all that the primary context holds. Since CUDA 11.0. */
CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev);

/** Makes a context and pushes it. Since CUDA 3.2. */
CUresult cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev);

/** Makes a context with a part of the device, and pushes it. Since CUDA 11.4. */
CUresult cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *paramsArray, int numParams, unsigned int flags,
    CUdevice dev);

/** Makes a context with parameters, which may be null, and pushes it. Since CUDA 12.5. */
CUresult cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *ctxCreateParams, unsigned int flags, CUdevice dev);

/** Destroys a context and all that it holds. Since CUDA 4.0. */
CUresult cuCtxDestroy_v2(CUcontext ctx);

/** Makes a context current, above the one that was. Since CUDA 4.0. */
CUresult cuCtxPushCurrent_v2(CUcontext ctx);

/** Takes the current context off the thread's stack. Since CUDA 4.0. */
CUresult cuCtxPopCurrent_v2(CUcontext *pctx);

/** Replaces the current context. Since CUDA 4.0. */
CUresult cuCtxSetCurrent(CUcontext ctx);

/** Gives the current context, or null. Since CUDA 4.0. */
CUresult cuCtxGetCurrent(CUcontext *pctx);

/** Gives the current context's device. Since CUDA 2.0. */
CUresult cuCtxGetDevice(CUdevice *device);

/** Gives a context's device; null names the current context. Since CUDA 13.0. */
CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext ctx);

/** Gives the current context's flags. Since CUDA 7.0. */
CUresult cuCtxGetFlags(unsigned int *flags);

/** Sets the current context's flags. Since CUDA 12.1. */
CUresult cuCtxSetFlags(unsigned int flags);

/** Gives a number that no other context of the process ever has. Since CUDA 12.0. */
CUresult cuCtxGetId(CUcontext ctx, unsigned long long *ctxId);

/** Gives the release of the interface that made the context. Since CUDA 3.2. */
CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int *version);

/** Waits for all work of the current context. Since CUDA 2.0. */
CUresult cuCtxSynchronize(void);

/** Waits for all work of a context; null names the current one. Since CUDA 13.0. */
CUresult cuCtxSynchronize_v2(CUcontext ctx);

/** Gives the lowest and the highest priority; higher ones are smaller numbers. Since CUDA 5.5. */
CUresult cuCtxGetStreamPriorityRange(int *leastPriority, int *greatestPriority);

/** Gives a limit of the current context. Since CUDA 3.1. */
CUresult cuCtxGetLimit(size_t *pvalue, CUlimit limit);

/** Sets a limit of the current context. Since CUDA 3.1. */
CUresult cuCtxSetLimit(CUlimit limit, size_t value);

/** Lets the current context address another context's memory. Since CUDA 4.0. */
CUresult cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags);

/** Ends what cuCtxEnablePeerAccess began. Since CUDA 4.0. */
CUresult cuCtxDisablePeerAccess(CUcontext peerContext);

/* ---- Streams ---- */

/** Makes a stream. Since CUDA 2.0. */
CUresult cuStreamCreate(CUstream *phStream, unsigned int Flags);

/** Makes a stream of a priority. Since CUDA 5.5. */
CUresult cuStreamCreateWithPriority(CUstream *phStream, unsigned int flags, int priority);

/** Ends a stream; its work goes on to the end. Since CUDA 4.0. */
CUresult cuStreamDestroy_v2(CUstream hStream);

/** Tells whether a stream's work is done: success, or CUDA_ERROR_NOT_READY. Since CUDA 2.0. */
CUresult cuStreamQuery(CUstream hStream);

/** Waits for a stream's work. Since CUDA 2.0. */
CUresult cuStreamSynchronize(CUstream hStream);

/** Lets later work of a stream wait for an event. Since CUDA 3.2. */
CUresult cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags);

/** Gives a stream's priority. Since CUDA 5.5. */
CUresult cuStreamGetPriority(CUstream hStream, int *priority);

/** Gives a stream's flags. Since CUDA 5.5. */
CUresult cuStreamGetFlags(CUstream hStream, unsigned int *flags);

/** Gives a number that no other stream of the process ever has. Since CUDA 12.0. */
CUresult cuStreamGetId(CUstream hStream, unsigned long long *streamId);

/** Gives a stream's context. Since CUDA 9.2. */
CUresult cuStreamGetCtx(CUstream hStream, CUcontext *pctx);

/** Gives a stream's context, or its green context. Since CUDA 12.5. */
CUresult cuStreamGetCtx_v2(CUstream hStream, CUcontext *pCtx, CUgreenCtx *pGreenCtx);

/** Gives a stream's device. Since CUDA 12.8. */
CUresult cuStreamGetDevice(CUstream hStream, CUdevice *device);

/** Tells whether a stream records into a graph. Since CUDA 10.0. */
CUresult cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus *captureStatus);

/** Tells what a stream records into. Since CUDA 11.3. */
CUresult cuStreamGetCaptureInfo_v2(CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out,
    CUgraph *graph_out, const CUgraphNode **dependencies_out, size_t *numDependencies_out);

/** Tells what a stream records into, with the data of edges. Since CUDA 12.3. */
CUresult cuStreamGetCaptureInfo_v3(CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out,
    CUgraph *graph_out, const CUgraphNode **dependencies_out, const CUgraphEdgeData **edgeData_out,
    size_t *numDependencies_out);

/** Swaps the calling thread's capture mode. Since CUDA 10.1. */
CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode);

/** Ties managed memory to a stream. Since CUDA 6.0. */
CUresult cuStreamAttachMemAsync(CUstream hStream, CUdeviceptr dptr, size_t length, unsigned int flags);

/** Runs a host function in stream order; it must make no driver call. Since CUDA 10.0. */
CUresult cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void *userData);

/** As cuLaunchHostFunc; tells how the stream waits for the function. Since CUDA 13.1. */
CUresult cuLaunchHostFunc_v2(CUstream hStream, CUhostFn fn, void *userData, unsigned int syncMode);

/** Runs a host function in stream order, with the stream's state; `flags` is 0. Since CUDA 5.0. */
CUresult cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void *userData, unsigned int flags);

/** Lets later work of a stream wait for a 32-bit word in memory. Since CUDA 11.7. */
CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags);

/** Lets later work of a stream wait for a 64-bit word in memory. Since CUDA 11.7. */
CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags);

/** Writes a 32-bit word in stream order. Since CUDA 11.7. */
CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags);

/** Writes a 64-bit word in stream order. Since CUDA 11.7. */
CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags);

/* ---- Events ---- */

/** Makes an event. Since CUDA 2.0. */
CUresult cuEventCreate(CUevent *phEvent, unsigned int Flags);

/** Ends an event. Since CUDA 4.0. */
CUresult cuEventDestroy_v2(CUevent hEvent);

/** Sets an event to the stream's present end. Since CUDA 2.0. */
CUresult cuEventRecord(CUevent hEvent, CUstream hStream);

/** Sets an event to the stream's present end, also across a capture. Since CUDA 11.1. */
CUresult cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags);

/** Tells whether an event has passed: success, or CUDA_ERROR_NOT_READY. Since CUDA 2.0. */
CUresult cuEventQuery(CUevent hEvent);

/** Waits for an event. Since CUDA 2.0. */
CUresult cuEventSynchronize(CUevent hEvent);

/** Gives the milliseconds between two events. Since CUDA 2.0. */
CUresult cuEventElapsedTime(float *pMilliseconds, CUevent hStart, CUevent hEnd);

/** Gives the milliseconds between two events. Since CUDA 12.8. */
CUresult cuEventElapsedTime_v2(float *pMilliseconds, CUevent hStart, CUevent hEnd);

/* ---- Device memory ---- */

/** Gives the free and the whole memory of the current device in bytes. Since CUDA 3.2. */
CUresult cuMemGetInfo_v2(size_t *free, size_t *total);

/** Allocates device memory. Since CUDA 3.2. */
CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize);

/** Allocates rows at a pitch that suits the device. Since CUDA 3.2. */
CUresult cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height, unsigned int
    ElementSizeBytes);

/** Frees device memory, after all work that may use it. Since CUDA 3.2. */
CUresult cuMemFree_v2(CUdeviceptr dptr);

/** Gives the allocation that an address lies in. Since CUDA 3.2. */
CUresult cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr);

/** Exports an address range, as a dma-buf. Since CUDA 11.7. */
CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr dptr, size_t size, CUmemRangeHandleType handleType,
    unsigned long long flags);

/* ---- Host memory ---- */

/** Allocates pinned host memory. Since CUDA 3.2. */
CUresult cuMemAllocHost_v2(void **pp, size_t bytesize);

/** Frees pinned host memory. Since CUDA 2.0. */
CUresult cuMemFreeHost(void *p);

/** Allocates pinned host memory with flags. Since CUDA 2.2. */
CUresult cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags);

/** Gives the device's address of mapped host memory. Since CUDA 3.2. */
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int Flags);

/** Gives the flags of pinned host memory. Since CUDA 2.3. */
CUresult cuMemHostGetFlags(unsigned int *pFlags, void *p);

/** Pins existing host memory. Since CUDA 6.5. */
CUresult cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags);

/** Ends what cuMemHostRegister began. Since CUDA 4.0. */
CUresult cuMemHostUnregister(void *p);

/* ---- Managed memory ---- */

/** Allocates memory that moves to whoever touches it. Since CUDA 6.0. */
CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags);

/** Moves managed memory to a device in stream order. Since CUDA 8.0. */
CUresult cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream);

/** Moves managed memory to a place in stream order. Since CUDA 12.2. */
CUresult cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags, CUstream
    hStream);

/** Moves many ranges of managed memory. Since CUDA 13.0. */
CUresult cuMemPrefetchBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count, CUmemLocation *prefetchLocs, size_t
    *prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags, CUstream hStream);

/** Drops the contents of many ranges of managed memory. Since CUDA 13.0. */
CUresult cuMemDiscardBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count, unsigned long long flags, CUstream
    hStream);

/** Drops the contents of many ranges of managed memory and moves them. Since CUDA 13.0. */
CUresult cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count, CUmemLocation
    *prefetchLocs, size_t *prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags, CUstream hStream);

/** Advises the driver on managed memory. Since CUDA 8.0. */
CUresult cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device);

/** Advises the driver on managed memory, with a place. Since CUDA 12.2. */
CUresult cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUmemLocation location);

/** Asks about a range of managed memory. Since CUDA 8.0. */
CUresult cuMemRangeGetAttribute(void *data, size_t dataSize, CUmem_range_attribute attribute, CUdeviceptr devPtr,
    size_t count);

/** Asks many things about a range of managed memory. Since CUDA 8.0. */
CUresult cuMemRangeGetAttributes(void **data, size_t *dataSizes, CUmem_range_attribute *attributes, size_t
    numAttributes, CUdeviceptr devPtr, size_t count);

/* ---- Copies ---- */

/** Copies between any two addresses. Since CUDA 4.0. */
CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount);

/** Copies between any two addresses in stream order. Since CUDA 4.0. */
CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream);

/** Copies from host to device. Since CUDA 3.2. */
CUresult cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount);

/** Copies from host to device in stream order. Since CUDA 3.2. */
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount, CUstream hStream);

/** Copies from device to host. Since CUDA 3.2. */
CUresult cuMemcpyDtoH_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount);

/** Copies from device to host in stream order. Since CUDA 3.2. */
CUresult cuMemcpyDtoHAsync_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream);

/** Copies within device memory. Since CUDA 3.2. */
CUresult cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount);

/** Copies within device memory in stream order. Since CUDA 3.2. */
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream);

/** Copies rows. Since CUDA 3.2. */
CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D *pCopy);

/** Copies rows at any pitch. Since CUDA 3.2. */
CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *pCopy);

/** Copies rows in stream order. Since CUDA 3.2. */
CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *pCopy, CUstream hStream);

/** Copies planes in stream order. Since CUDA 3.2. */
CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *pCopy, CUstream hStream);

/** Copies between the memories of two contexts. Since CUDA 4.0. */
CUresult cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext, size_t
    ByteCount);

/** Copies between the memories of two contexts in stream order. Since CUDA 4.0. */
CUresult cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext,
    size_t ByteCount, CUstream hStream);

/** Copies between any two addresses in stream order, with hints. Since CUDA 13.2. */
CUresult cuMemcpyWithAttributesAsync(CUdeviceptr dst, CUdeviceptr src, size_t size, CUmemcpyAttributes *attr, CUstream
    hStream);

/** Does many copies in one call, and tells which one failed. Since CUDA 12.8. */
CUresult cuMemcpyBatchAsync(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count, CUmemcpyAttributes
    *attrs, size_t *attrsIdxs, size_t numAttrs, size_t *failIdx, CUstream hStream);

/** Does many copies in one call. Since CUDA 13.0. */
CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count, CUmemcpyAttributes
    *attrs, size_t *attrsIdxs, size_t numAttrs, CUstream hStream);

/* ---- Fills ---- */

/** Fills memory with a byte. Since CUDA 3.2. */
CUresult cuMemsetD8_v2(CUdeviceptr dstDevice, unsigned char uc, size_t N);

/** Fills memory with a 16-bit word; `N` in words. Since CUDA 3.2. */
CUresult cuMemsetD16_v2(CUdeviceptr dstDevice, unsigned short us, size_t N);

/** Fills memory with a 32-bit word; `N` in words. Since CUDA 3.2. */
CUresult cuMemsetD32_v2(CUdeviceptr dstDevice, unsigned int ui, size_t N);

/** Fills rows with a byte. Since CUDA 3.2. */
CUresult cuMemsetD2D8_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height);

/** Fills rows with a 16-bit word; `Width` in words. Since CUDA 3.2. */
CUresult cuMemsetD2D16_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width, size_t Height);

/** Fills rows with a 32-bit word; `Width` in words. Since CUDA 3.2. */
CUresult cuMemsetD2D32_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height);

/** Fills memory with a byte in stream order. Since CUDA 3.2. */
CUresult cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream);

/** Fills memory with a 16-bit word in stream order; `N` in words. Since CUDA 3.2. */
CUresult cuMemsetD16Async(CUdeviceptr dstDevice, unsigned short us, size_t N, CUstream hStream);

/** Fills memory with a 32-bit word in stream order; `N` in words. Since CUDA 3.2. */
CUresult cuMemsetD32Async(CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream);

/** Fills rows with a byte in stream order. Since CUDA 3.2. */
CUresult cuMemsetD2D8Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height,
    CUstream hStream);

/** Fills rows with a 16-bit word in stream order; `Width` in words. Since CUDA 3.2. */
CUresult cuMemsetD2D16Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width, size_t Height,
    CUstream hStream);

/** Fills rows with a 32-bit word in stream order; `Width` in words. Since CUDA 3.2. */
CUresult cuMemsetD2D32Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height,
    CUstream hStream);

/* ---- Pointers ---- */

/** Asks about an address. Since CUDA 4.0. */
CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr);

/** Asks many things about an address. Since CUDA 7.0. */
CUresult cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute *attributes, void **data, CUdeviceptr
    ptr);

/** Sets an attribute of the allocation that an address lies in. Since CUDA 6.0. */
CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr ptr);

/* ---- Stream-ordered allocation and pools ---- */

/** Allocates from the device's present pool in stream order. Since CUDA 11.2. */
CUresult cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream);

/** Allocates from a pool in stream order. Since CUDA 11.2. */
CUresult cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream);

/** Frees in stream order. Since CUDA 11.2. */
CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream);

/** Makes a pool. Since CUDA 11.2. */
CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps);

/** Ends a pool; its live blocks stay usable. Since CUDA 11.2. */
CUresult cuMemPoolDestroy(CUmemoryPool pool);

/** Gives unused memory back to the system. Since CUDA 11.2. */
CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep);

/** Sets an attribute of a pool. Since CUDA 11.2. */
CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value);

/** Gives an attribute of a pool. Since CUDA 11.2. */
CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value);

/** Sets who may use a pool's memory. Since CUDA 11.2. */
CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count);

/** Tells whether a place may use a pool's memory. Since CUDA 11.2. */
CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool memPool, CUmemLocation *location);

/** Exports a pool to other processes. Since CUDA 11.2. */
CUresult cuMemPoolExportToShareableHandle(void *handle_out, CUmemoryPool pool, CUmemAllocationHandleType handleType,
    unsigned long long flags);

/** Imports a pool of another process. Since CUDA 11.2. */
CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool_out, void *handle, CUmemAllocationHandleType
    handleType, unsigned long long flags);

/** Exports a block of an exported pool. Since CUDA 11.2. */
CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *shareData_out, CUdeviceptr ptr);

/** Imports a block of an imported pool. Since CUDA 11.2. */
CUresult cuMemPoolImportPointer(CUdeviceptr *ptr_out, CUmemoryPool pool, CUmemPoolPtrExportData *shareData);

/** Gives the pool that a place always has. Since CUDA 13.0. */
CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool_out, CUmemLocation *location, CUmemAllocationType type);

/** Gives a place's present pool. Since CUDA 13.0. */
CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type);

/** Sets a place's present pool. Since CUDA 13.0. */
CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool);

/* ---- Virtual memory ---- */

/** Reserves addresses. Since CUDA 10.2. */
CUresult cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr, unsigned long long
    flags);

/** Gives reserved addresses back. Since CUDA 10.2. */
CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size);

/** Makes physical memory. Since CUDA 10.2. */
CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop, unsigned long
    long flags);

/** Drops a handle of physical memory; mappings keep the memory. Since CUDA 10.2. */
CUresult cuMemRelease(CUmemGenericAllocationHandle handle);

/** Maps physical memory at reserved addresses. Since CUDA 10.2. */
CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long
    flags);

/** Ends a mapping. Since CUDA 10.2. */
CUresult cuMemUnmap(CUdeviceptr ptr, size_t size);

/** Sets who may use mapped addresses. Since CUDA 10.2. */
CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count);

/** Tells what a place may do at an address. Since CUDA 10.2. */
CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr);

/** Exports physical memory to other processes. Since CUDA 10.2. */
CUresult cuMemExportToShareableHandle(void *shareableHandle, CUmemGenericAllocationHandle handle,
    CUmemAllocationHandleType handleType, unsigned long long flags);

/** Imports physical memory of another process. Since CUDA 10.2. */
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *osHandle,
    CUmemAllocationHandleType shHandleType);

/** Gives the unit in bytes of physical sizes and mappings. Since CUDA 10.2. */
CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
    CUmemAllocationGranularity_flags option);

/** Gives the properties of physical memory. Since CUDA 10.2. */
CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle);

/** Gives a handle of the physical memory mapped at an address. Since CUDA 11.0. */
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr);

/* ---- Sharing between processes ---- */

/** Exports an allocation to other processes. Since CUDA 4.1. */
CUresult cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr);

/** Imports an allocation of another process. Since CUDA 11.0. */
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags);

/** Ends what cuIpcOpenMemHandle began. Since CUDA 4.1. */
CUresult cuIpcCloseMemHandle(CUdeviceptr dptr);

/** Exports an event to other processes. Since CUDA 4.1. */
CUresult cuIpcGetEventHandle(CUipcEventHandle *pHandle, CUevent event);

/** Imports an event of another process. Since CUDA 4.1. */
CUresult cuIpcOpenEventHandle(CUevent *phEvent, CUipcEventHandle handle);

/* ---- Memory and semaphores of other APIs ---- */

/** Imports memory; a file descriptor belongs to the driver afterwards. Since CUDA 10.0. */
CUresult cuImportExternalMemory(CUexternalMemory *extMem_out, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *memHandleDesc);

/** Maps a range of imported memory; cuMemFree ends it. Since CUDA 10.0. */
CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr *devPtr, CUexternalMemory extMem, const
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC *bufferDesc);

/** Ends an import; mapped ranges must be freed before. Since CUDA 10.0. */
CUresult cuDestroyExternalMemory(CUexternalMemory extMem);

/** Imports a semaphore. Since CUDA 10.0. */
CUresult cuImportExternalSemaphore(CUexternalSemaphore *extSem_out, const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC
    *semHandleDesc);

/** Signals semaphores in stream order. Since CUDA 10.0. */
CUresult cuSignalExternalSemaphoresAsync(const CUexternalSemaphore *extSemArray, const
    CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *paramsArray, unsigned int numExtSems, CUstream stream);

/** Lets later work of a stream wait for semaphores. Since CUDA 10.0. */
CUresult cuWaitExternalSemaphoresAsync(const CUexternalSemaphore *extSemArray, const
    CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *paramsArray, unsigned int numExtSems, CUstream stream);

/** Ends an import. Since CUDA 10.0. */
CUresult cuDestroyExternalSemaphore(CUexternalSemaphore extSem);

/* ---- Capture and graphs ---- */

/** Lets a stream record what it is given into a graph, in place of doing it. Since CUDA 10.1. */
CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode);

/** Ends what cuStreamBeginCapture began, and gives the graph. Since CUDA 10.0. */
CUresult cuStreamEndCapture(CUstream hStream, CUgraph *phGraph);

/** Gives a graph's nodes, or only their number. Since CUDA 10.0. */
CUresult cuGraphGetNodes(CUgraph hGraph, CUgraphNode *nodes, size_t *numNodes);

/** Makes a graph ready for launches. Since CUDA 11.4. */
CUresult cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph, unsigned long long flags);

/** Makes a graph ready for launches, and tells why not. Since CUDA 12.0. */
CUresult cuGraphInstantiateWithParams(CUgraphExec *phGraphExec, CUgraph hGraph,
    CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams);

/** Prepares the next launch in stream order. Since CUDA 11.1. */
CUresult cuGraphUpload(CUgraphExec hGraphExec, CUstream hStream);

/** Does a graph's work in stream order. Since CUDA 10.0. */
CUresult cuGraphLaunch(CUgraphExec hGraphExec, CUstream hStream);

/** Ends an executable graph; a launch goes on to the end. Since CUDA 10.0. */
CUresult cuGraphExecDestroy(CUgraphExec hGraphExec);

/** Ends a graph; what was made from it stays. Since CUDA 10.0. */
CUresult cuGraphDestroy(CUgraph hGraph);

/* ---- Graphs, node by node ---- */

/** Makes an empty graph; `flags` is 0. Since CUDA 10.0. */
CUresult cuGraphCreate(CUgraph *phGraph, unsigned int flags);

/** Copies a graph. Since CUDA 10.0. */
CUresult cuGraphClone(CUgraph *phGraphClone, CUgraph originalGraph);

/** Finds the copy of a node. Since CUDA 10.0. */
CUresult cuGraphNodeFindInClone(CUgraphNode *phNode, CUgraphNode hOriginalNode, CUgraph hClonedGraph);

/** Adds a copy of planes. Since CUDA 10.0. */
CUresult cuGraphAddMemcpyNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
    size_t numDependencies, const CUDA_MEMCPY3D *copyParams, CUcontext ctx);

/** Gives a copy's parameters. Since CUDA 10.0. */
CUresult cuGraphMemcpyNodeGetParams(CUgraphNode hNode, CUDA_MEMCPY3D *nodeParams);

/** Sets a copy's parameters. Since CUDA 10.0. */
CUresult cuGraphMemcpyNodeSetParams(CUgraphNode hNode, const CUDA_MEMCPY3D *nodeParams);

/** Sets a copy's parameters in an executable graph. Since CUDA 10.2. */
CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_MEMCPY3D *copyParams,
    CUcontext ctx);

/** Adds a fill. Since CUDA 10.0. */
CUresult cuGraphAddMemsetNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
    size_t numDependencies, const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx);

/** Gives a fill's parameters. Since CUDA 10.0. */
CUresult cuGraphMemsetNodeGetParams(CUgraphNode hNode, CUDA_MEMSET_NODE_PARAMS *nodeParams);

/** Sets a fill's parameters. Since CUDA 10.0. */
CUresult cuGraphMemsetNodeSetParams(CUgraphNode hNode, const CUDA_MEMSET_NODE_PARAMS *nodeParams);

/** Sets a fill's parameters in an executable graph. Since CUDA 10.2. */
CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
    const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx);

/** Adds a host function. Since CUDA 10.0. */
CUresult cuGraphAddHostNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
    size_t numDependencies, const CUDA_HOST_NODE_PARAMS *nodeParams);

/** Gives a host function's parameters. Since CUDA 10.0. */
CUresult cuGraphHostNodeGetParams(CUgraphNode hNode, CUDA_HOST_NODE_PARAMS *nodeParams);

/** Sets a host function's parameters. Since CUDA 10.0. */
CUresult cuGraphHostNodeSetParams(CUgraphNode hNode, const CUDA_HOST_NODE_PARAMS *nodeParams);

/** Sets a host function's parameters in an executable graph. Since CUDA 10.2. */
CUresult cuGraphExecHostNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
    const CUDA_HOST_NODE_PARAMS *nodeParams);

/** Adds a copy of a whole graph. Since CUDA 10.0. */
CUresult cuGraphAddChildGraphNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
    size_t numDependencies, CUgraph childGraph);

/** Gives the graph inside a node. Since CUDA 10.0. */
CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode hNode, CUgraph *phGraph);

/** Updates a graph inside an executable graph. Since CUDA 11.1. */
CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, CUgraph childGraph);

/** Adds a node that does nothing. Since CUDA 10.0. */
CUresult cuGraphAddEmptyNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
    size_t numDependencies);

/** Adds the recording of an event. Since CUDA 11.1. */
CUresult cuGraphAddEventRecordNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
    size_t numDependencies, CUevent event);

/** Gives the event that a node records. Since CUDA 11.1. */
CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode hNode, CUevent *event_out);

/** Sets the event that a node records. Since CUDA 11.1. */
CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode hNode, CUevent event);

/** Sets the event that a node of an executable graph records. Since CUDA 11.1. */
CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode, CUevent event);

/** Adds a wait for an event. Since CUDA 11.1. */
CUresult cuGraphAddEventWaitNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
    size_t numDependencies, CUevent event);

/** Gives the event that a node waits for. Since CUDA 11.1. */
CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode hNode, CUevent *event_out);

/** Sets the event that a node waits for. Since CUDA 11.1. */
CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode hNode, CUevent event);

/** Sets the event that a node of an executable graph waits for. Since CUDA 11.1. */
CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode, CUevent event);

/** Adds an allocation. Since CUDA 11.4. */
CUresult cuGraphAddMemAllocNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
    size_t numDependencies, CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams);

/** Gives an allocation's parameters. Since CUDA 11.4. */
CUresult cuGraphMemAllocNodeGetParams(CUgraphNode hNode, CUDA_MEM_ALLOC_NODE_PARAMS *params_out);

/** Adds a free of memory that a graph allocates. Since CUDA 11.4. */
CUresult cuGraphAddMemFreeNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
    size_t numDependencies, CUdeviceptr dptr);

/** Gives the address that a node frees. Since CUDA 11.4. */
CUresult cuGraphMemFreeNodeGetParams(CUgraphNode hNode, CUdeviceptr *dptr_out);

/** Removes a node and its edges. Since CUDA 10.0. */
CUresult cuGraphDestroyNode(CUgraphNode hNode);

/** Tells what a node does. Since CUDA 10.0. */
CUresult cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType *type);

/** Gives the nodes that come after no other, or only their number. Since CUDA 10.0. */
CUresult cuGraphGetRootNodes(CUgraph hGraph, CUgraphNode *rootNodes, size_t *numRootNodes);

/** Gives a graph's edges, or only their number. Since CUDA 10.0. */
CUresult cuGraphGetEdges(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to, size_t *numEdges);

/** As cuGraphGetEdges, with the data of edges. Since CUDA 12.3. */
CUresult cuGraphGetEdges_v2(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *edgeData,
    size_t *numEdges);

/** Gives the nodes directly before a node, or only their number. Since CUDA 10.0. */
CUresult cuGraphNodeGetDependencies(CUgraphNode hNode, CUgraphNode *dependencies, size_t *numDependencies);

/** As cuGraphNodeGetDependencies, with the data of edges. Since CUDA 12.3. */
CUresult cuGraphNodeGetDependencies_v2(CUgraphNode hNode, CUgraphNode *dependencies, CUgraphEdgeData *edgeData,
    size_t *numDependencies);

/** Gives the nodes directly after a node, or only their number. Since CUDA 10.0. */
CUresult cuGraphNodeGetDependentNodes(CUgraphNode hNode, CUgraphNode *dependentNodes, size_t *numDependentNodes);

/** As cuGraphNodeGetDependentNodes, with the data of edges. Since CUDA 12.3. */
CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode hNode, CUgraphNode *dependentNodes, CUgraphEdgeData *edgeData,
    size_t *numDependentNodes);

/** Adds edges. Since CUDA 10.0. */
CUresult cuGraphAddDependencies(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
    size_t numDependencies);

/** As cuGraphAddDependencies, with the data of edges. Since CUDA 12.3. */
CUresult cuGraphAddDependencies_v2(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
    const CUgraphEdgeData *edgeData, size_t numDependencies);

/** Removes edges. Since CUDA 10.0. */
CUresult cuGraphRemoveDependencies(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
    size_t numDependencies);

/** As cuGraphRemoveDependencies, with the data of edges. Since CUDA 12.3. */
CUresult cuGraphRemoveDependencies_v2(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
    const CUgraphEdgeData *edgeData, size_t numDependencies);

/** Gives an executable graph the parameters of a graph of the same shape. Since CUDA 10.2. */
CUresult cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode *hErrorNode_out,
    CUgraphExecUpdateResult *updateResult_out);

/** As cuGraphExecUpdate; one structure receives the results. Since CUDA 12.0. */
CUresult cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphExecUpdateResultInfo *resultInfo);

/** Gives the flags with which an executable graph was made. Since CUDA 12.0. */
CUresult cuGraphExecGetFlags(CUgraphExec hGraphExec, cuuint64_t *flags);

/** Switches a copy, a fill or a kernel of an executable graph off or on. Since CUDA 11.6. */
CUresult cuGraphNodeSetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int isEnabled);

/** Tells whether a node of an executable graph is on. Since CUDA 11.6. */
CUresult cuGraphNodeGetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int *isEnabled);

/* ---- User objects ---- */

/** Makes a user object with references that the caller owns; `destroy` runs after the last one. Since CUDA 11.3. */
CUresult cuUserObjectCreate(CUuserObject *object_out, void *ptr, CUhostFn destroy, unsigned int initialRefcount,
    unsigned int flags);

/** Adds references that the caller owns. Since CUDA 11.3. */
CUresult cuUserObjectRetain(CUuserObject object, unsigned int count);

/** Gives up references that the caller owns. Since CUDA 11.3. */
CUresult cuUserObjectRelease(CUuserObject object, unsigned int count);

/** Gives a graph references to a user object: new ones, or the caller's. Since CUDA 11.3. */
CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count, unsigned int flags);

/** Takes references to a user object from a graph. Since CUDA 11.3. */
CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count);

/* ---- Memory held by graphs ---- */

/** Gives an attribute of the memory that graphs hold. Since CUDA 11.4. */
CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void *value);

/** Sets an attribute of the memory that graphs hold. Since CUDA 11.4. */
CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void *value);

/** Gives memory that graphs do not use back to the system. Since CUDA 11.4. */
CUresult cuDeviceGraphMemTrim(CUdevice device);

/* ---- Modules ---- */

/** Loads device code from a file. Since CUDA 2.0. */
CUresult cuModuleLoad(CUmodule *module, const char *fname);

/** Loads device code: PTX text ended with a zero, or a binary. Since CUDA 2.0. */
CUresult cuModuleLoadData(CUmodule *module, const void *image);

/** As cuModuleLoadData, with options. Since CUDA 2.1. */
CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int numOptions, CUjit_option *options,
    void **optionValues);

/** Loads device code from a collection for several devices. Since CUDA 2.0. */
CUresult cuModuleLoadFatBinary(CUmodule *module, const void *fatCubin);

/** Unloads device code. Since CUDA 2.0. */
CUresult cuModuleUnload(CUmodule hmod);

/** Tells when kernels are loaded. Since CUDA 11.7. */
CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode);

/** Finds a kernel of a module. Since CUDA 2.0. */
CUresult cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name);

/** Gives the number of a module's kernels. Since CUDA 12.4. */
CUresult cuModuleGetFunctionCount(unsigned int *count, CUmodule mod);

/** Gives a module's kernels. Since CUDA 12.4. */
CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned int numFunctions, CUmodule mod);

/** Finds a variable of a module. Since CUDA 3.2. */
CUresult cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *bytes, CUmodule hmod, const char *name);

/* ---- Libraries ---- */

/** Loads device code for all contexts. Since CUDA 12.0. */
CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jitOptions, void **jitOptionsValues,
    unsigned int numJitOptions, CUlibraryOption *libraryOptions, void **libraryOptionValues,
    unsigned int numLibraryOptions);

/** As cuLibraryLoadData, from a file. Since CUDA 12.0. */
CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *fileName, CUjit_option *jitOptions,
    void **jitOptionsValues, unsigned int numJitOptions, CUlibraryOption *libraryOptions, void **libraryOptionValues,
    unsigned int numLibraryOptions);

/** Unloads a library from all contexts. Since CUDA 12.0. */
CUresult cuLibraryUnload(CUlibrary library);

/** Begins a link of several images of device code. Since CUDA 6.5. */
CUresult cuLinkCreate_v2(unsigned int numOptions, CUjit_option *options, void **optionValues, CUlinkState *stateOut);

/** Adds an image in memory to a link. Since CUDA 6.5. */
CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void *data, size_t size, const char *name,
    unsigned int numOptions, CUjit_option *options, void **optionValues);

/** Adds an image in a file to a link. Since CUDA 6.5. */
CUresult cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char *path, unsigned int numOptions,
    CUjit_option *options, void **optionValues);

/** Gives the linked image, which ends with the link. Since CUDA 5.5. */
CUresult cuLinkComplete(CUlinkState state, void **cubinOut, size_t *sizeOut);

/** Ends a link. Since CUDA 5.5. */
CUresult cuLinkDestroy(CUlinkState state);

/** Finds a kernel of a library. Since CUDA 12.0. */
CUresult cuLibraryGetKernel(CUkernel *pKernel, CUlibrary library, const char *name);

/** Gives the number of a library's kernels. Since CUDA 12.4. */
CUresult cuLibraryGetKernelCount(unsigned int *count, CUlibrary lib);

/** Gives a library's kernels. Since CUDA 12.4. */
CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int numKernels, CUlibrary lib);

/** Gives the library's module in the current context. Since CUDA 12.0. */
CUresult cuLibraryGetModule(CUmodule *pMod, CUlibrary library);

/** Finds a variable of a library in the current context. Since CUDA 12.0. */
CUresult cuLibraryGetGlobal(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name);

/** Finds a managed variable of a library. Since CUDA 12.0. */
CUresult cuLibraryGetManaged(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name);

/** Gives a library's kernel in the current context. Since CUDA 12.0. */
CUresult cuKernelGetFunction(CUfunction *pFunc, CUkernel kernel);

/** Gives the library of a kernel. Since CUDA 12.5. */
CUresult cuKernelGetLibrary(CUlibrary *pLib, CUkernel kernel);

/** Gives an attribute of a library's kernel on a device. Since CUDA 12.0. */
CUresult cuKernelGetAttribute(int *pi, CUfunction_attribute attrib, CUkernel kernel, CUdevice dev);

/** Sets an attribute of a library's kernel on a device. Since CUDA 12.0. */
CUresult cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel, CUdevice dev);

/** Sets what a library's kernel prefers its fast memory for. Since CUDA 12.0. */
CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice dev);

/** Gives the name of a library's kernel. Since CUDA 12.3. */
CUresult cuKernelGetName(const char **name, CUkernel hfunc);

/** Gives the number of parameters of a library's kernel. Since CUDA 13.2. */
CUresult cuKernelGetParamCount(CUkernel kernel, size_t *paramCount);

/** Gives the place and the size of a parameter of a library's kernel. Since CUDA 12.4. */
CUresult cuKernelGetParamInfo(CUkernel kernel, size_t paramIndex, size_t *paramOffset, size_t *paramSize);

/* ---- Kernels ---- */

/** Gives an attribute of a kernel. Since CUDA 2.2. */
CUresult cuFuncGetAttribute(int *pi, CUfunction_attribute attrib, CUfunction hfunc);

/** Sets an attribute of a kernel. Since CUDA 9.0. */
CUresult cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value);

/** Sets what a kernel prefers its fast memory for. Since CUDA 3.0. */
CUresult cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache config);

/** Gives the module of a kernel. Since CUDA 11.0. */
CUresult cuFuncGetModule(CUmodule *hmod, CUfunction hfunc);

/** Gives the name of a kernel. Since CUDA 12.3. */
CUresult cuFuncGetName(const char **name, CUfunction hfunc);

/** Gives the number of parameters of a kernel. Since CUDA 13.2. */
CUresult cuFuncGetParamCount(CUfunction func, size_t *paramCount);

/** Gives the place and the size of a parameter of a kernel. Since CUDA 12.4. */
CUresult cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t *paramOffset, size_t *paramSize);

/** Tells whether a kernel is loaded. Since CUDA 12.4. */
CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction function);

/** Loads a kernel. Since CUDA 12.4. */
CUresult cuFuncLoad(CUfunction function);

/** Runs a kernel in stream order. Since CUDA 4.0. */
CUresult cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ, unsigned
    int blockDimX, unsigned int blockDimY, unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream, void
    **kernelParams, void **extra);

/** Runs a kernel in stream order, with attributes. Since CUDA 11.6. */
CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra);

/** Runs a kernel whose blocks wait for each other. Since CUDA 9.0. */
CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
    unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream
    hStream, void **kernelParams);

/** Gives how many blocks of a kernel a multiprocessor runs at once. Since CUDA 6.5. */
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *numBlocks, CUfunction func, int blockSize,
    size_t dynamicSMemSize);

/** As cuOccupancyMaxActiveBlocksPerMultiprocessor, with flags. Since CUDA 7.0. */
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *numBlocks, CUfunction func, int blockSize,
    size_t dynamicSMemSize, unsigned int flags);

/** Gives the block size with which most threads run at once. Since CUDA 6.5. */
CUresult cuOccupancyMaxPotentialBlockSize(int *minGridSize, int *blockSize, CUfunction func, CUoccupancyB2DSize
    blockSizeToDynamicSMemSize, size_t dynamicSMemSize, int blockSizeLimit);

/** As cuOccupancyMaxPotentialBlockSize, with flags. Since CUDA 7.0. */
CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *minGridSize, int *blockSize, CUfunction func,
    CUoccupancyB2DSize blockSizeToDynamicSMemSize, size_t dynamicSMemSize, int blockSizeLimit, unsigned int flags);

/** Gives the shared memory that is left for each of some blocks of a multiprocessor. Since CUDA 10.2. */
CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *dynamicSmemSize, CUfunction func, int numBlocks,
    int blockSize);

/** Gives the largest cluster of a launch. Since CUDA 11.7. */
CUresult cuOccupancyMaxPotentialClusterSize(int *clusterSize, CUfunction func, const CUlaunchConfig *config);

/** Gives how many clusters of a launch run at once. Since CUDA 11.7. */
CUresult cuOccupancyMaxActiveClusters(int *numClusters, CUfunction func, const CUlaunchConfig *config);

/* ---- Kernels and conditions in graphs ---- */

/** Adds a launch. Since CUDA 12.0. */
CUresult cuGraphAddKernelNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
    size_t numDependencies, const CUDA_KERNEL_NODE_PARAMS_v2 *nodeParams);

/** Gives a launch's parameters. Since CUDA 12.0. */
CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS_v2 *nodeParams);

/** Sets a launch's parameters. Since CUDA 12.0. */
CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS_v2 *nodeParams);

/** Sets a launch's parameters in an executable graph. Since CUDA 12.0. */
CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode,
    const CUDA_KERNEL_NODE_PARAMS_v2 *nodeParams);

/** Gives an attribute of a launch. Since CUDA 11.0. */
CUresult cuGraphKernelNodeGetAttribute(CUgraphNode hNode, CUlaunchAttributeID attr,
    union CUlaunchAttributeValue_union *value_out);

/** Sets an attribute of a launch. Since CUDA 11.0. */
CUresult cuGraphKernelNodeSetAttribute(CUgraphNode hNode, CUlaunchAttributeID attr,
    const union CUlaunchAttributeValue_union *value);

/** Gives a launch the attributes of another one. Since CUDA 11.0. */
CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode dst, CUgraphNode src);

/** Adds a node of any kind. Since CUDA 12.2. */
CUresult cuGraphAddNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
    size_t numDependencies, struct CUgraphNodeParams_st *nodeParams);

/** As cuGraphAddNode, with the data of edges. Since CUDA 12.3. */
CUresult cuGraphAddNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
    const CUgraphEdgeData *dependencyData, size_t numDependencies, struct CUgraphNodeParams_st *nodeParams);

/** Gives the parameters of a node of any kind. Since CUDA 13.2. */
CUresult cuGraphNodeGetParams(CUgraphNode hNode, struct CUgraphNodeParams_st *nodeParams);

/** Sets the parameters of a node of any kind. Since CUDA 12.2. */
CUresult cuGraphNodeSetParams(CUgraphNode hNode, struct CUgraphNodeParams_st *nodeParams);

/** Sets the parameters of a node of any kind in an executable graph. Since CUDA 12.2. */
CUresult cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
    struct CUgraphNodeParams_st *nodeParams);

/** Writes a graph as a picture, in the language of Graphviz. Since CUDA 11.3. */
CUresult cuGraphDebugDotPrint(CUgraph hGraph, const char *path, unsigned int flags);

/** Makes a value for conditional nodes of a graph. Since CUDA 12.3. */
CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle *pHandle_out, CUgraph hGraph, CUcontext ctx,
    unsigned int defaultLaunchValue, unsigned int flags);

/** As cuStreamBeginCapture, into a graph that is there. Since CUDA 12.3. */
CUresult cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies,
    const CUgraphEdgeData *dependencyData, size_t numDependencies, CUstreamCaptureMode mode);

/** Adds to the nodes that a capture's next node comes after, or replaces them. Since CUDA 11.3. */
CUresult cuStreamUpdateCaptureDependencies(CUstream hStream, CUgraphNode *dependencies, size_t numDependencies,
    unsigned int flags);

/** As cuStreamUpdateCaptureDependencies, with the data of edges. Since CUDA 12.3. */
CUresult cuStreamUpdateCaptureDependencies_v2(CUstream hStream, CUgraphNode *dependencies,
    const CUgraphEdgeData *dependencyData, size_t numDependencies, unsigned int flags);

#ifdef __cplusplus
}
#endif

#endif /* CUDA_SYS_WRAPPER_H */
